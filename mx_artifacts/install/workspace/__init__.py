"""The directory beside a cache root that has its lock, staging area, journal and receipts."""
