"""``python -m ninfer_jax`` is the ``ninfer-jax`` command."""

from ninfer_jax.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
