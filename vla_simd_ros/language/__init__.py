"""Language models: text in, text out."""
