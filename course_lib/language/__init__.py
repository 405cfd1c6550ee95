"""The generated language, lexicon to corpus, and the reader of lines of text."""
