"""Results of recent papers, run: estimators, samplers and solvers behind part V."""
