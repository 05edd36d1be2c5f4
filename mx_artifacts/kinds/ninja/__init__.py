"""Modules that ninja built (FlashInfer, TVM-FFI): checked, and moved to another root."""
