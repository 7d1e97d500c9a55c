"""ReWOO: plan all steps, carry them out, solve."""
