//! What was read of commits: found again by its source and its question, of its own tenant and project alone.

use crate::world::World;
use domain::{
    ids::ProjectId,
    session::{Origin, Source, files::SourceFiles},
};
use store::tenant::readings::{KnownCommit, NewReading, PeoplesSource};

fn git(revision: Option<&str>) -> Source {
    Source {
        origin: Origin::GitUrl("https://h.org/a.git".to_owned()),
        revision: revision.map(ToOwned::to_owned),
        ..Source::default()
    }
}

fn of<'a>(project: &'a ProjectId, source: &'a Source) -> PeoplesSource<'a> {
    let SourceFiles::People(files) = source.files() else { panic!("files of people") };
    PeoplesSource { project, source, files }
}

fn reading(commit: &'static str) -> NewReading<'static> {
    NewReading { commit, question: &[], reading: commit.as_bytes() }
}

#[tokio::test]
async fn a_reading_is_found_by_its_source_and_its_question() {
    let world = World::new().await;
    let (store, tenant, project) = (&world.store, world.tenant, &world.project);
    let (main, side, named) = (git(None), git(Some("side")), vec!["docs/*.md".to_owned()]);
    assert_eq!(store.find_source_commit(tenant, of(project, &main), &[]).await.unwrap(), None);
    store.note_reading(tenant, of(project, &main), reading("c1")).await.unwrap();
    let find = async |source: &Source, question: &[String]| {
        let found = store.find_source_commit(tenant, of(project, source), question).await.unwrap();
        found.map(|KnownCommit { commit, reading, .. }| (commit, reading))
    };
    let c1 = || "c1".to_owned();
    assert_eq!(find(&main, &[]).await, Some((c1(), Some(b"c1".to_vec()))));
    assert_eq!(find(&main, &named).await, Some((c1(), None)), "another question");
    assert_eq!(find(&side, &[]).await, None, "another revision");
    // Another revision may name the same commit.
    store.note_source_commit(tenant, of(project, &side), "c1").await.unwrap();
    assert_eq!(find(&side, &[]).await, Some((c1(), Some(b"c1".to_vec()))));
    store.note_source_commit(tenant, of(project, &side), "c2").await.unwrap();
    assert_eq!(find(&side, &[]).await, Some(("c2".to_owned(), None)));
    let read_again = NewReading { reading: b"more", ..reading("c1") };
    store.note_reading(tenant, of(project, &main), read_again).await.unwrap();
    assert_eq!(find(&main, &[]).await, Some((c1(), Some(b"more".to_vec()))));
}

#[tokio::test]
async fn a_reading_belongs_to_its_project_and_is_forgotten_after_a_week() {
    let mut world = World::new().await;
    let stranger = world.sample.tenant();
    world.store.create_tenant(stranger, "second").await.unwrap();
    let (store, tenant, project) = (&world.store, world.tenant, &world.project);
    let main = git(None);
    store.note_reading(tenant, of(project, &main), reading("c1")).await.unwrap();
    let other: ProjectId = "prj_other".parse().unwrap();
    for (tenant, project) in [(stranger, project), (tenant, &other)] {
        assert_eq!(store.find_source_commit(tenant, of(project, &main), &[]).await.unwrap(), None);
        store.note_reading(tenant, of(project, &main), reading("c2")).await.unwrap_err();
    }
    assert_eq!(store.forget_old_readings().await.unwrap(), 0);
    world.sql("update source_commit set seen_at = now() - interval '1 hour'").await;
    let known = world.store.find_source_commit(tenant, of(&world.project, &main), &[]).await.unwrap();
    assert!((3_600_000..3_700_000).contains(&known.unwrap().age_ms));
    world.sql("update source_commit set seen_at = now() - interval '8 days'").await;
    world.sql("update commit_reading set read_at = now() - interval '8 days'").await;
    assert_eq!(world.store.forget_old_readings().await.unwrap(), 2);
    assert_eq!(world.store.find_source_commit(tenant, of(&world.project, &main), &[]).await.unwrap(), None);
}

#[tokio::test]
async fn a_project_keeps_its_newest_readings() {
    let world = World::new().await;
    let (store, tenant, project) = (&world.store, world.tenant, &world.project);
    let main = git(None);
    let many = "insert into commit_reading (tenant_id, project_id, commit, question, reading, read_at)
                select tenant_id, id, 'old' || n, 'q', 'x', now() - n * interval '1 minute' from project, generate_series(1, 150) n";
    world.sql(many).await;
    store.note_reading(tenant, of(project, &main), reading("c1")).await.unwrap();
    world.sql("do $$ begin assert (select count(*) from commit_reading) = 100; end $$").await;
    world.sql("do $$ begin assert (select count(*) from commit_reading where commit in ('c1', 'old1', 'old99')) = 3; end $$").await;
}
