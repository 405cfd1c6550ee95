"""Read the states of mBART and its kin: load a model, take activations from any site, put reconstructions back.

`model` loads a checkpoint, `families` says how its kin differ, `activations` reads the states of any layer (`packed`
without padding), `activation_store` keeps them on disk, `splicing` puts reconstructions back and `translation` writes
greedy translations. `by_hand` is the model written out. `pretraining` made the small models that are shipped here.
"""
