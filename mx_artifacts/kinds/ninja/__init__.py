"""Modules that ninja built (FlashInfer, TVM-FFI): checks them and adapts them to another root."""
