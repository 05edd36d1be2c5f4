"""Seeds: targets that serve what they fetch, as soon as the first bytes have arrived."""
