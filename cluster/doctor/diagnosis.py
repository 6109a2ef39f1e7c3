"""The one table of symptoms, and what of it is present."""

from cluster.doctor.int8_symptoms import INT8
from cluster.doctor.jitter import JITTER
from cluster.doctor.memory_symptoms import MEMORY
from cluster.doctor.observations import Observations
from cluster.doctor.symptom import Finding, Signs, Symptom
from cluster.doctor.throughput import THROUGHPUT
from cluster.doctor.wrong_settings import WRONG_SETTINGS

SYMPTOMS: tuple[Symptom, ...] = (*WRONG_SETTINGS, *MEMORY, *JITTER, *THROUGHPUT, *INT8)


def diagnose(seen: Observations) -> list[Finding]:
    """Return what is present, in the order of the table."""
    return [_build_finding(symptom, signs) for symptom in SYMPTOMS for signs in symptom.find(seen)]


def _build_finding(symptom: Symptom, signs: Signs) -> Finding:
    return Finding(
        symptom=symptom.name,
        where=signs.where,
        seen=symptom.seen,
        figures=signs.figures,
        threshold=symptom.threshold,
        cure=symptom.cure.format(**signs.cure),
        why=symptom.why,
    )
