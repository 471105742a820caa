"""The fault runner: `penstock run` on random topologies under random faults, see `__main__`.

`topology` draws what runs and `user_code` is what it computes, `oracle` says what must come out; `plan` draws
the faults, `strikes` carries them out, `process_tree` names whom they hit, `clock` steps the wall clock;
`sink_watch` and `gaps` see pauses, `leftovers` what stays behind, `store_view` what the store says; `scene`
runs one seed, `report` tells all of them.
"""
