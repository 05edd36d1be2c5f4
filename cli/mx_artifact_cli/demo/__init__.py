"""`mx-artifact demo`: compiles on one node and runs without compiling on another."""
