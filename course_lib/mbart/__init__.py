"""mBART from text to activations: a generated corpus, the model, its pretraining, its pooled states.

`corpus` writes parallel sentences whose concepts are known, `model` loads a checkpoint, `activations`
turns sentences into vectors, and `pretrain` made the small checkpoint that is shipped beside this file.
"""
