-- What of a session's settings somebody chose. What nobody chose is the platform's default, and a repository may say otherwise.
alter table session
    add column agent_chosen boolean not null default true,
    add column model_chosen boolean not null default true;
