"""The loop: farms that changed are decided on, applied, verified and, when damaged, repaired.

``reconciler`` is the loop. ``loop_state`` is what it shares with the watches: ``farm_index``, ``queue``, ``problems``,
``progress``, ``load_balancers``. ``plan`` (with ``decide`` and ``changes``) is pure; ``programmer`` has it applied
(``apply``, ``policy_programmer``, ``earlier_rules``). ``verification`` and ``repair`` (``foreign_changes``) compare.
"""
