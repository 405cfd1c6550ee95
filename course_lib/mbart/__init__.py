"""Read the states of encoder-decoders: load a model, take activations from any site, put reconstructions back.

`model` loads a checkpoint, `families` says how they differ, `activations` reads the states of any layer (`packed`
without padding, `padded` by transformers' forward, whose modules `structure` finds), `activation_store` keeps them on
disk, `splicing` puts reconstructions back and `translation` writes greedy translations. `by_hand` is mBART written out.
`pretraining` made the small models that are shipped here.
"""
