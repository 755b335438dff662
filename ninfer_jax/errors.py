"""Every error that this project raises on purpose.

    NinferError
    ├── ConfigError                    a flag or an environment value is wrong (exit 2, before loading)
    ├── ListenError                    the address cannot be listened on (exit 1)
    ├── ModelLoadError                 an artifact, checkpoint or GGUF file cannot be served
    │   ├── UnsupportedModelError      known format, but an architecture or option we do not implement
    │   └── CorruptModelError          missing, mis-shaped, left-over or non-finite tensors, bad hash
    ├── RequestError                   the client's request is at fault (HTTP 400); names a field where it can
    │   ├── InvalidRequestError        malformed value
    │   ├── UnsupportedFeatureError    well formed, but a guarantee that we cannot give
    │   ├── InvalidPromptError         the normalised prompt breaks its contract
    │   ├── ContextLengthExceededError the prompt does not fit the context
    │   ├── ModelNotFoundError         HTTP 404
    │   ├── ResponseNotFoundError      HTTP 404, no such stored Response
    │   ├── RouteNotFoundError         HTTP 404, no such path
    │   ├── MethodNotAllowedError      HTTP 405
    │   ├── AuthenticationError        HTTP 401, a missing or wrong key
    │   └── RequestTooLargeError       HTTP 413, the raw body
    ├── CapacityError                  try again later
    │   ├── ServerOverloadedError      the engine is at its capacity (429; 529 on Messages)
    │   └── QueueTimeoutError          not admitted before its deadline (503; 504 on Messages)
    └── EngineError                    our fault (500)
        └── EngineUnavailableError     the engine has failed or is shutting down (503)

``code`` is stable and public; ``field`` is the request member or flag to blame, in the client's own
spelling (``messages[2].content``). ``assert`` stays for our own invariants and never sees user input.
"""

from typing import ClassVar


class NinferError(Exception):
    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, field: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        if code is not None:
            self.code = code  # type: ignore[misc]  # a finer public code than the class's own


class ConfigError(NinferError):
    code = "invalid_configuration"


class ListenError(NinferError):
    code = "cannot_listen"


class ModelLoadError(NinferError):
    code = "model_load_failed"


class UnsupportedModelError(ModelLoadError):
    code = "unsupported_model"


class CorruptModelError(ModelLoadError):
    code = "corrupt_model"


class RequestError(NinferError):
    code = "invalid_request"


class InvalidRequestError(RequestError):
    code = "invalid_value"


class UnsupportedFeatureError(RequestError):
    code = "unsupported_feature"


class InvalidPromptError(RequestError):
    code = "invalid_prompt"


class ContextLengthExceededError(RequestError):
    code = "context_length_exceeded"


class ModelNotFoundError(RequestError):
    code = "model_not_found"


class ResponseNotFoundError(RequestError):
    code = "response_not_found"


class RouteNotFoundError(RequestError):
    code = "not_found"


class MethodNotAllowedError(RequestError):
    code = "method_not_allowed"


class AuthenticationError(RequestError):
    code = "invalid_api_key"


class RequestTooLargeError(RequestError):
    code = "request_too_large"


class CapacityError(NinferError):
    code = "capacity"


class ServerOverloadedError(CapacityError):
    code = "server_overloaded"


class QueueTimeoutError(CapacityError):
    code = "request_queue_timeout"


class EngineError(NinferError):
    code = "engine_error"


class EngineUnavailableError(EngineError):
    code = "engine_unavailable"
