"""mBART from text to activations: a generated corpus, the model, its pretraining, its states.

`corpus` writes parallel sentences whose concepts are known, `model` loads a checkpoint, and `pretrain` made
the small one that is shipped beside this file, from the `examples` that `scores` judges it on, too. `activations`
reads the states of any layer (`packed` without padding), `activation_store` keeps them on disk, `splicing` puts
reconstructions back. `by_hand` is the model written out.
"""
