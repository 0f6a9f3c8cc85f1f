-- Fills a table, takes a change back, sorts with an index, and has several processes of the server count together.
\set ON_ERROR_STOP on
select version();
create table visit (page integer, seconds integer);
insert into visit select n % 7, n from generate_series(1, 700000) n;
create index on visit (page, seconds);
begin;
delete from visit;
rollback;
analyze visit;
set max_parallel_workers_per_gather = 2;
set parallel_setup_cost = 0;
set parallel_tuple_cost = 0;
set min_parallel_table_scan_size = 0;
set min_parallel_index_scan_size = 0;
explain (analyze, costs off, timing off, summary off) select sum(seconds) from visit;
select 'page ' || page, sum(seconds) from visit group by page order by 2 desc limit 1;
