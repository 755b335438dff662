"""From a kernel's Python to an object file that needs nothing but the C library.

Numba compiles and optimises; what it wraps around for Python's sake is left behind, so that whoever loads
the object needs neither Numba nor its runtime. Imported only where Numba is.
"""

from importlib import import_module

import llvmlite.binding as llvm
import numba

from ninfer_jax.kernels.cpu.entry import entry_point
from ninfer_jax.kernels.cpu.kernel import Kernel
from ninfer_jax.kernels.cpu.places import ENTRY_SYMBOL, PLACES_SYMBOL, PLACES_WORDS

C_FUNCTIONS = frozenset(("abort", "free", "malloc", "memcpy", "memmove", "memset", "sched_yield", "sqrtf"))
"""What an object may call."""

_FRAME = f"""
@{PLACES_SYMBOL} = global [{PLACES_WORDS} x i64] zeroinitializer, align 128

declare i32 @"{{native}}"(ptr, ptr, i64)
declare void @abort()
declare ptr @malloc(i64)
declare void @free(ptr)

define i64 @{ENTRY_SYMBOL}(i64 %address) {{{{
  %result = alloca i64
  %error = alloca ptr
  %status = call i32 @"{{native}}"(ptr %result, ptr %error, i64 %address)
  %done = icmp eq i32 %status, 0
  br i1 %done, label %good, label %bad
good:
  ret i64 0
bad:
  call void @abort()
  unreachable
}}}}

define ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %align) {{{{
  %bytes = add i64 %size, 128
  %memory = call ptr @malloc(i64 %bytes)
  %none = icmp eq ptr %memory, null
  br i1 %none, label %bad, label %good
good:
  store i64 1, ptr %memory
  %place = getelementptr i64, ptr %memory, i64 3
  %first = ptrtoint ptr %memory to i64
  %beyond = add i64 %first, 127
  %aligned = and i64 %beyond, -64
  store i64 %aligned, ptr %place
  ret ptr %memory
bad:
  call void @abort()
  unreachable
}}}}

define void @NRT_MemInfo_call_dtor(ptr %memory) {{{{
  call void @free(ptr %memory)
  ret void
}}}}
"""
"""What the object brings itself: its entry and places, and the two functions of Numba's runtime (``NRT``)
behind ``np.empty``, whose memory begins with a count of references and, three words on, the data's address.
A kernel that raises has a bug, or no memory is left: it ends the process."""


def object_code(kernel: Kernel, schedule: int) -> bytes:
    """The kernel as a relocatable object file for this host; see ``places.py`` for what it exports."""
    module_name, _, function = kernel.code.partition(":")
    functions = getattr(import_module(module_name), function)(*kernel.parameters)
    llvm.add_symbol(PLACES_SYMBOL, 1)  # Numba links what it compiles, though nobody runs it here
    signature = numba.int64(numba.int64)
    compiled = numba.cfunc(signature)(entry_point(kernel, functions, schedule))
    native = compiled.native_name.removeprefix("cfunc.")
    module = llvm.parse_assembly(_FRAME.format(native=native))
    module.link_in(llvm.parse_assembly(compiled.inspect_llvm()))
    target = _target_machine()
    _strip(module, target)
    _check_imports(kernel, module)
    return bytes(target.emit_object(module))


def _target_machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        jit=True,
    )


def _strip(module: llvm.ModuleRef, target: llvm.TargetMachine) -> None:
    """Keep what the entry needs."""
    for function in module.functions:
        if not function.is_declaration and function.name != ENTRY_SYMBOL:
            function.linkage = llvm.Linkage.internal
    for variable in module.global_variables:
        if not variable.is_declaration and variable.name != PLACES_SYMBOL:
            variable.linkage = llvm.Linkage.internal
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    options = llvm.create_pipeline_tuning_options()
    passes.run(module, llvm.create_pass_builder(target, options))


def _check_imports(kernel: Kernel, module: llvm.ModuleRef) -> None:
    unknown = sorted(
        symbol.name
        for symbols in (module.functions, module.global_variables)
        for symbol in symbols
        if symbol.is_declaration and not symbol.name.startswith("llvm.") and symbol.name not in C_FUNCTIONS
    )
    if unknown:
        raise NotImplementedError(f"{kernel.name} needs {', '.join(unknown)}")
