"""What a root contains now, compared with receipts and with what would be fetched."""
