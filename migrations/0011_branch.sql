-- The branch that a session's files were on when somebody looked last; null: none that is known.
alter table session
    add column branch text;
