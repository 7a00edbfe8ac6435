"""Places that grow while they are adopted again and again, step by step as their writers leave them."""
