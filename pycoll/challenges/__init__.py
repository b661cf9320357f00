"""Challenges: small schedules that are wrong, slow or missing, for you to mend; the proof is the judge."""
