//! The opening of a workspace: which step comes next, and where the door of the session leads meanwhile. Pure: the worker performs
//! each step and feeds back its outcome.
// Continues in worker::repository::workspace, which performs the steps.

/// Repetitions of a step whose result vanishes before the workspace uses it: a clone, a setup, an install.
pub const OPENING_REPETITIONS_MAX: u32 = 3;

/// A step of an opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Ask whether the files exist.
    Find,
    /// Clone the source, and read the environment that it proposes.
    Clone,
    /// Bring the image, and find the secrets of the scripts.
    Prepare,
    /// Run the setup on top of the image, unless the machine has its result.
    SetUp,
    /// Run the install with the files of the source, and keep what it leaves.
    Install,
    /// Close the door after a script, whether it succeeded or not.
    CloseDoor,
    /// Go on without what is installed in the origin of a copy.
    LeaveInstallOut,
    /// Let the files become the workspace. From then on, programs of the session can run.
    OpenFiles(Assurance),
    /// Let the door take no rules of another loop that would still set up the files.
    SealDoor,
    /// Record that the files exist, before any call can change them.
    Record,
    /// The workspace is open.
    End,
    /// The last outcome failed the opening.
    Fail,
}

/// Where the door of the session leads during a step. The worker sets it before it performs the step, in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// As before: nothing goes through it.
    Unchanged,
    /// To the repositories of the source, and to no host.
    Repositories,
    /// To the hosts of a setup, with its secrets.
    Setup,
    /// To the hosts of an install, with its secrets, and to the repositories of the source.
    Install,
    /// To no host, with no secret.
    Closed,
    /// To the repositories of the source, and certainly to no host and with no secret, as far as that is needed.
    Files(Assurance),
    /// To no host until a turn sets its rules, and open to no other setup.
    Sealed,
}

/// Whether a broker that does not answer fails the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assurance {
    /// A script had its hosts and secrets, also in another loop: nothing may run before the broker has confirmed the rules.
    Confirmed,
    /// No script ran: the door leads nowhere that the settings do not name.
    IfPossible,
}

/// What subscribers of the session learn about an opening that takes long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The machine clones the repository.
    Clone,
    /// The machine brings the objects of Git LFS.
    Lfs,
    /// The machine clones the submodules.
    Submodules,
    /// Layers of the image come to the machine.
    Image,
    /// The script of the setup runs.
    Setup,
    /// The script of the install runs.
    Install,
    /// The checkout becomes the workspace.
    Files,
    /// It is over.
    Ready,
}

/// What the worker found out, or did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The answer to [`Step::Find`].
    Found(FoundFiles),
    /// The source is cloned.
    Cloned,
    /// There is nothing to clone: another loop of the same tree has opened the files.
    OpenElsewhere,
    /// The image is there, and the workspace has these scripts.
    Prepared(Scripts),
    /// Any other step is done.
    Done,
    /// The step failed.
    Failed(Failure),
}

/// The files of a workspace before it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundFiles {
    /// They exist, and that is recorded.
    Recorded,
    /// They exist, and this loop began without a record of them.
    Unrecorded,
    /// There are none.
    Missing,
    /// They existed: the machine lost them.
    Lost,
}

/// The scripts that run before the files of a workspace are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scripts {
    /// Whether a setup makes something on top of the image.
    pub setup: bool,
    /// Whether an install runs with the files.
    pub install: bool,
}

impl Scripts {
    fn assurance(self) -> Assurance {
        if self.setup || self.install { Assurance::Confirmed } else { Assurance::IfPossible }
    }
}

/// Why a step failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The source is not the one that was cloned: its branch moved, and the machine started again.
    SourceChanged,
    /// The machine has made room where the result of the setup was.
    EnvironmentMissing,
    /// The machine does not have what the install leaves.
    InstallMissing,
    /// Anything else.
    Other,
}

/// An opening: what it has found out, and what it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    has_source: bool,
    scripts: Scripts,
    repetitions: Repetitions,
    step: Step,
    /// What follows after the door is closed.
    after_script: AfterScript,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Repetitions {
    clones: u32,
    setups: u32,
    installs: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterScript {
    /// The files may be opened.
    OpenFiles,
    /// The script must have run before: the files need the setup again.
    Begin,
    Fail,
}

impl Step {
    /// Where the door leads during the step.
    pub fn door(self) -> Door {
        match self {
            Self::Clone => Door::Repositories,
            Self::SetUp => Door::Setup,
            Self::Install => Door::Install,
            Self::CloseDoor => Door::Closed,
            Self::OpenFiles(assurance) => Door::Files(assurance),
            Self::SealDoor => Door::Sealed,
            Self::Find | Self::Prepare | Self::LeaveInstallOut | Self::Record | Self::End | Self::Fail => {
                Door::Unchanged
            }
        }
    }

    /// Whether it runs a script. A script that is interrupted runs again, and the door is then opened again for it.
    pub fn runs_script(self) -> bool {
        matches!(self.door(), Door::Setup | Door::Install)
    }

    /// The stage that begins with the step; `None`: that of the step before it goes on.
    pub fn stage(self) -> Option<Stage> {
        match self {
            Self::Clone => Some(Stage::Clone),
            Self::Prepare => Some(Stage::Image),
            Self::SetUp => Some(Stage::Setup),
            Self::Install => Some(Stage::Install),
            Self::OpenFiles(_) => Some(Stage::Files),
            Self::Find
            | Self::CloseDoor
            | Self::LeaveInstallOut
            | Self::SealDoor
            | Self::Record
            | Self::End
            | Self::Fail => None,
        }
    }
}

impl Stage {
    /// Its name in the notice `workspace.progress`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Clone => "clone",
            Self::Lfs => "lfs",
            Self::Submodules => "submodules",
            Self::Image => "image",
            Self::Setup => "setup",
            Self::Install => "install",
            Self::Files => "files",
            Self::Ready => "ready",
        }
    }
}

impl Opening {
    /// Begins with [`Step::Find`]. `has_source`: the files come from a repository.
    pub fn of(has_source: bool) -> Self {
        Self {
            has_source,
            scripts: Scripts::default(),
            repetitions: Repetitions::default(),
            step: Step::Find,
            after_script: AfterScript::OpenFiles,
        }
    }

    /// The step that the worker performs now.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Takes the outcome of the current step. One that does not fit fails the opening.
    pub fn apply(&mut self, outcome: Outcome) {
        self.step = self.next(outcome);
    }

    fn next(&mut self, outcome: Outcome) -> Step {
        match (self.step, outcome) {
            (Step::Find, Outcome::Found(FoundFiles::Recorded)) => Step::End,
            (Step::Find, Outcome::Found(FoundFiles::Unrecorded)) => Step::Record,
            (Step::Find, Outcome::Found(FoundFiles::Missing)) => self.plan(),
            (Step::Clone, Outcome::Cloned) => Step::Prepare,
            (Step::Clone, Outcome::OpenElsewhere) => {
                self.scripts = Scripts::default();
                self.open_files()
            }
            (Step::Prepare, Outcome::Prepared(scripts)) => {
                self.scripts = scripts;
                self.set_up()
            }
            (Step::SetUp, Outcome::Done) => self.close_door(AfterScript::OpenFiles),
            (Step::Install, Outcome::Done) => self.close_door(AfterScript::Begin),
            (
                Step::SetUp | Step::Install,
                Outcome::Failed(_)
                | Outcome::Found(_)
                | Outcome::Cloned
                | Outcome::OpenElsewhere
                | Outcome::Prepared(_),
            ) => self.close_door(AfterScript::Fail),
            (Step::CloseDoor, Outcome::Done) => match self.after_script {
                AfterScript::OpenFiles => self.open_files(),
                AfterScript::Begin => self.set_up(),
                AfterScript::Fail => Step::Fail,
            },
            (Step::LeaveInstallOut, Outcome::Done) => self.set_up(),
            (Step::OpenFiles(Assurance::Confirmed), Outcome::Done) => Step::SealDoor,
            (Step::OpenFiles(Assurance::IfPossible) | Step::SealDoor, Outcome::Done) => Step::Record,
            (Step::OpenFiles(_), Outcome::Failed(failure)) => self.repeat(failure),
            (Step::Record, Outcome::Done) => Step::End,
            (Step::End, _) => Step::End,
            (
                Step::Find
                | Step::Clone
                | Step::Prepare
                | Step::CloseDoor
                | Step::LeaveInstallOut
                | Step::OpenFiles(_)
                | Step::SealDoor
                | Step::Record
                | Step::Fail,
                Outcome::Found(_)
                | Outcome::Cloned
                | Outcome::OpenElsewhere
                | Outcome::Prepared(_)
                | Outcome::Done
                | Outcome::Failed(_),
            ) => Step::Fail,
        }
    }

    /// Finds out what the workspace needs.
    fn plan(&self) -> Step {
        if self.has_source { Step::Clone } else { Step::Prepare }
    }

    fn set_up(&self) -> Step {
        if self.scripts.setup { Step::SetUp } else { self.open_files() }
    }

    fn open_files(&self) -> Step {
        Step::OpenFiles(self.scripts.assurance())
    }

    fn close_door(&mut self, then: AfterScript) -> Step {
        self.after_script = then;
        Step::CloseDoor
    }

    /// Does again what vanished before the files could be opened.
    fn repeat(&mut self, failure: Failure) -> Step {
        let (repetitions, step) = match failure {
            Failure::SourceChanged => (&mut self.repetitions.clones, self.has_source.then_some(Step::Clone)),
            Failure::EnvironmentMissing => (&mut self.repetitions.setups, Some(Step::SetUp)),
            Failure::InstallMissing if self.scripts.install => {
                (&mut self.repetitions.installs, Some(Step::Install))
            }
            Failure::InstallMissing => (&mut self.repetitions.installs, Some(Step::LeaveInstallOut)),
            Failure::Other => return Step::Fail,
        };
        *repetitions += 1;
        if *repetitions > OPENING_REPETITIONS_MAX {
            return Step::Fail;
        }
        match step {
            Some(Step::SetUp) => self.set_up(),
            Some(step) => step,
            None => self.plan(),
        }
    }
}

#[cfg(test)]
mod tests;
