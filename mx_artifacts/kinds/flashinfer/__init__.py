"""FlashInfer's cache: modules built by ninja, CuTe DSL modules, autotune files."""
