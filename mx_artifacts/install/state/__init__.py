"""Compares the present contents of a root with its receipts and with what a fetch would bring."""
