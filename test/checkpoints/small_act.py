"""The smallest ACT that has all of its parts."""

SMALL = {
    "dim_model": 16,
    "heads": 2,
    "feedforward": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "chunk_size": 4,
}
