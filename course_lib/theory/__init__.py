"""Results of recent papers, run: estimators, samplers and solvers behind lessons 22 to 24 and 30 to 32."""
