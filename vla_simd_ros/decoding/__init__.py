"""Decoding tokens: one after the other, several at once until they agree, or until they are sure enough."""
