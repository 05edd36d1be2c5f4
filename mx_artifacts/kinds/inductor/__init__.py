"""TorchInductor's cache, and vLLM's torch_compile_cache, which contains one."""
