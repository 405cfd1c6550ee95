"""Pretrain a small mBART on the generated language, from tokenizer to model card, and train it on one language more.

`pretrain` runs it with a `config`, from the `examples` that `scores` judges the model on, too. `tokenizer` trains its
pieces, `model_card` writes its README. `fifth_language` adapts a pretrained model to a language it never read.
"""
