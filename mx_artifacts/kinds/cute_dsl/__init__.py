"""The CuTe DSL's file cache, and the identity values that FlashInfer's CuTe kernels share."""
