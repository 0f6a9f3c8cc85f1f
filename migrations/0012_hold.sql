-- Which hold `held_until` belongs to: it is renewed while the files of the tree are taken back, so its end does not name it.
alter table session_run
    add column held_by uuid;
