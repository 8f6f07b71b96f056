"""What to do about each reason why a switch is not ready: one sentence each, for `--explain`."""

from policies.switching.id_generators import hob_name
from policies.switching.precheck import Finding, Reason

_REMEDIES = {
    Reason.FOREIGN_ID: "Take another target, or delete these ledgers from it if nobody needs them; for a target with "
    "other users set `policies.switching.target_policy` to `shared`, and for kinds whose ids are taken "
    "`policies.switching.strategies.<kind>` to `remap`.",
    Reason.DELETED_ID: "Set `policies.switching.strategies.<kind>` to `remap`, so that they get new ids: bookies may "
    "still hold entries of the deleted ones.",
    Reason.IDGEN_BEHIND: "Create the znode `<root>/idgen-long/{hob}` in the target's ZooKeeper (`idgen-long` "
    "before it), then let clients that already write to the target reconnect, since they remember the old place.",
    Reason.LAYOUT: "Use clusters whose LAYOUT is hierarchical or longhierarchical, and mend references whose ledger "
    "id is none.",
    Reason.ALIAS: "Name another target: both addresses lead to the same cluster, so there is nothing to switch.",
    Reason.SNAPSHOT_INCOMPLETE: "Make everything readable for headgate (both ZooKeepers, all schema locators and "
    "cursors), then run the precheck again.",
    Reason.STALE: "Run the precheck again: what it read is too old to rely on.",
}


def explain(finding: Finding) -> str:
    """What a person can do about a finding."""
    hob = hob_name(finding.hob) if finding.hob is not None else "HOB-<k>"
    return _REMEDIES[finding.reason].replace("{hob}", hob)
