//! Every operation that is served. The router and the document are made from this list.

use super::{
    catalogue, document, edits, files,
    operation::{Answer, Operation, delete, get, patch, post, put},
    operator, projects, prompt, pty, requests, sessions, skills, stream, tui, vcs,
};

mod newer;

/// All of them.
pub(super) fn operations() -> Vec<Operation> {
    let older = [server(), catalogue(), sessions(), messages(), requests(), files(), terminals(), clients()];
    older.into_iter().flatten().chain(newer::operations()).collect()
}

fn server() -> Vec<Operation> {
    vec![
        get("/doc", document::get, "This description").gives("{}"),
        get("/global/health", catalogue::health, "Whether the service answers, and its version")
            .gives("{healthy:boolean version}"),
        get("/event", stream::of_directory, "What happens in the directory, until the client leaves")
            .query("{shapes?:'current'|'older'}")
            .answers(Answer::Events("Event")),
        get("/global/event", stream::of_tenant, "What happens in all directories, or in the named one")
            .query("{shapes?:'current'|'older'}")
            .answers(Answer::Events("{directory? project? payload:Event}")),
        get("/app", catalogue::health, "Whether the service answers, for extensions of editors")
            .gives("{healthy:boolean version}"),
        post("/instance/dispose", operator::dispose, "Has the clients of the directory read everything anew")
            .gives("boolean"),
        post("/global/dispose", operator::dispose_all, "Has all clients of the tenant read everything anew")
            .gives("boolean"),
        post("/global/upgrade", operator::upgrade, "Says that the operator does this")
            .gives("{success:boolean error}"),
        patch("/config", operator::settings, "Refused: settings bind everybody in a project").gives("Config"),
        patch("/global/config", operator::settings, "Refused: settings bind everybody in a tenant")
            .gives("Config"),
        put("/auth/{provider}", operator::provider_key, "Refused: keys of providers are the operator's")
            .gives("boolean"),
        delete("/auth/{provider}", operator::provider_key, "Refused: keys of providers are the operator's")
            .gives("boolean"),
        post("/provider/{provider}/oauth/authorize", operator::provider_key, "Refused, for the same reason")
            .takes("{method:number inputs?:string{}}")
            .gives("any"),
        post("/provider/{provider}/oauth/callback", operator::provider_key, "Refused, for the same reason")
            .takes("{method:number code?}")
            .gives("boolean"),
        post("/log", catalogue::log, "Writes a line into the service's log")
            .takes("{service? level? message? extra?:any}")
            .gives("boolean"),
    ]
}

fn catalogue() -> Vec<Operation> {
    vec![
        get("/global/config", catalogue::config, "The models that sessions begin with").gives("Config"),
        get("/config", catalogue::config, "The models that sessions begin with").gives("Config"),
        get("/config/providers", catalogue::config_providers, "The providers, and the first model of each")
            .gives("{providers:Provider[] default:string{}}"),
        get("/provider", catalogue::providers, "The providers, all of which can be used")
            .gives("{all:Provider[] default:string{} connected:string[]}"),
        get("/provider/auth", catalogue::nothing_by_name, "None: keys of providers are the operator's")
            .gives("any{}"),
        get("/agent", catalogue::agents, "The agents").gives("Agent[]"),
        get("/command", catalogue::commands, "The commands that are known without a repository")
            .gives("Command[]"),
        get("/path", catalogue::path, "Where the client is, in its own words")
            .gives("{home state config worktree directory}"),
        get("/project", projects::list, "The projects").gives("Project[]"),
        get("/project/current", projects::current, "The project of the directory, made if there is none")
            .gives("Project"),
        post("/project/git/init", projects::current, "The same: every workspace is a repository already")
            .gives("Project"),
        patch("/project/{id}", projects::update, "Changes how a project is shown; what is not said stays")
            .takes("{name? icon?:{url? override? color?} commands?:{start?}}")
            .gives("Project"),
        get("/project/{id}/directories", projects::directories, "The directory of a project")
            .gives("{directory}[]"),
        get("/experimental/capabilities", catalogue::capabilities, "What the service can beside the rest")
            .gives("{backgroundSubagents:boolean}"),
        get("/experimental/console", catalogue::console, "None: there is no console")
            .gives("{consoleManagedProviders:string[] switchableOrgCount:integer}"),
        get("/experimental/resource", catalogue::nothing_by_name, "None: there are no MCP servers")
            .gives("any{}"),
        get("/experimental/workspace", catalogue::nothing, "None").gives("any[]"),
        get("/experimental/workspace/status", catalogue::nothing, "None").gives("any[]"),
        get("/lsp", catalogue::nothing, "None: there are no language servers").gives("any[]"),
        get("/formatter", catalogue::nothing, "None: there are no formatters").gives("any[]"),
        get("/mcp", catalogue::nothing_by_name, "None: there are no MCP servers").gives("any{}"),
        get("/skill", skills::list, "What the repository of the newest session teaches agents")
            .gives("{name description? location content}[]"),
        get("/experimental/tool/ids", catalogue::tool_names, "The names of the tools").gives("string[]"),
        get("/experimental/tool", catalogue::tools, "The tools as models are told of them")
            .query("{provider model}")
            .gives("{id description parameters:any}[]"),
    ]
}

fn sessions() -> Vec<Operation> {
    vec![
        get("/session", sessions::list, "Lists the sessions of the directory, last changed first")
            .query("{roots? start?:integer search? limit?:integer}")
            .gives("Session[]"),
        post("/session", sessions::create, "Makes a session")
            .takes("{title? agent? model?:{id providerID} permission?:Rule[]}")
            .gives("Session"),
        get("/session/status", sessions::status, "What the sessions that are not idle do").gives("{type}{}"),
        get("/session/{id}", sessions::get, "Gives a session").gives("Session"),
        patch("/session/{id}", sessions::update, "Names or archives a session")
            .takes("{title? time?:{archived?:number}}")
            .gives("Session"),
        delete("/session/{id}", sessions::delete, "Deletes a session with its files and its subtasks")
            .gives("boolean"),
        get("/session/{id}/children", sessions::children, "Lists its subtasks, oldest first")
            .gives("Session[]"),
        get("/session/{id}/todo", sessions::todo, "Its list of things to do").gives("Todo[]"),
        get("/session/{id}/diff", sessions::diff, "What the turn of a prompt changed; nothing without one")
            .query("{messageID?}")
            .gives("FileDiff[]"),
        post(
            "/session/{id}/fork",
            sessions::fork,
            "Makes a session that begins with what was said before a message",
        )
        .takes("{messageID?}")
        .gives("Session")
        .conflicts(),
        post("/session/{id}/abort", sessions::abort, "Stops its turn and its subtasks; true for any id")
            .gives("boolean"),
        post("/session/{id}/revert", sessions::revert, "Takes files and messages back to a point")
            .takes("{messageID partID?}")
            .gives("Session")
            .conflicts(),
        post("/session/{id}/unrevert", sessions::unrevert, "Brings back what was taken back")
            .gives("Session")
            .conflicts(),
    ]
}

fn messages() -> Vec<Operation> {
    vec![
        get(
            "/session/{id}/message",
            prompt::list,
            "Its newest messages, or those before a cursor, oldest first",
        )
        .query("{limit?:integer before?}")
        .gives("Said[]"),
        post("/session/{id}/message", prompt::send, "Prompts, and answers when the turn is over")
            .takes("Prompt")
            .gives("Said")
            .conflicts(),
        get("/session/{id}/message/{message}", prompt::get, "Gives a message").gives("Said"),
        delete("/session/{id}/message/{message}", edits::remove_message, "Removes a message")
            .gives("boolean")
            .conflicts(),
        patch(
            "/session/{id}/message/{message}/part/{part}",
            edits::change_part,
            "Changes the text of a part",
        )
        .takes("{id messageID type:'text' text}")
        .gives("Part")
        .conflicts(),
        delete("/session/{id}/message/{message}/part/{part}", edits::remove_part, "Removes a part")
            .gives("boolean")
            .conflicts(),
        post("/session/{id}/prompt_async", prompt::send_async, "Prompts, and answers when that is stored")
            .takes("Prompt")
            .answers(Answer::Nothing)
            .conflicts(),
        post("/session/{id}/command", prompt::command, "Runs a command, and answers when the turn is over")
            .takes("{command arguments agent? model? messageID? variant? parts?:PromptPart[]}")
            .gives("Said")
            .conflicts(),
        post("/session/{id}/shell", prompt::shell, "Runs a command of the shell, without a model")
            .takes("{command agent? model?:Model messageID?}")
            .gives("Said")
            .conflicts(),
        post("/session/{id}/init", prompt::init, "Has instructions for agents written")
            .takes("{providerID modelID messageID?}")
            .gives("boolean")
            .conflicts(),
        post("/session/{id}/summarize", prompt::summarize, "Has everything so far summed up")
            .takes("{providerID modelID}")
            .gives("boolean")
            .conflicts(),
    ]
}

fn requests() -> Vec<Operation> {
    let reply = "{reply:'once'|'always'|'reject' message?}";
    vec![
        get("/permission", requests::permissions, "The tool calls that wait to be allowed")
            .gives("Permission[]"),
        post("/permission/{id}/reply", requests::reply_permission, "Allows or refuses a tool call")
            .takes(reply)
            .gives("boolean"),
        post(
            "/session/{id}/permissions/{permission}",
            requests::respond_permission,
            "As the reply to a permission, for older clients",
        )
        .takes("{response:'once'|'always'|'reject'}")
        .gives("boolean"),
        get("/question", requests::questions, "The questions that wait for an answer").gives("Question[]"),
        post("/question/{id}/reply", requests::reply_question, "Answers a question")
            .takes("{answers:string[][]}")
            .gives("boolean"),
        post("/question/{id}/reject", requests::reject_question, "Refuses to answer a question")
            .gives("boolean"),
    ]
}

fn files() -> Vec<Operation> {
    vec![
        get("/file", files::list, "Lists a directory in the files of the newest session")
            .query("{path}")
            .gives("File[]"),
        get("/file/content", files::content, "Reads a file")
            .query("{path}")
            .gives("{type:'text'|'binary' content encoding? mimeType?}"),
        get("/file/status", catalogue::nothing, "None, as in OpenCode").gives("any[]"),
        get("/find", files::text, "Finds lines by a regular expression").query("{pattern}").gives("Match[]"),
        get("/find/file", files::names, "Finds files by letters of their paths, the shortest first")
            .query("{query dirs? type? limit?:integer}")
            .gives("string[]"),
        get("/find/symbol", catalogue::nothing, "None, as in OpenCode").query("{query?}").gives("any[]"),
        get("/vcs", vcs::branch, "The branch of the newest session").gives("{branch?}"),
        get("/vcs/status", vcs::status, "The files that the newest session changed since its beginning")
            .gives("{file additions:integer deletions:integer status:'added'|'deleted'|'modified'}[]"),
        get("/vcs/diff", vcs::patches, "The same with patches; both modes begin with the session")
            .query("{mode:'git'|'branch'}")
            .gives("FileDiff[]"),
        get("/vcs/diff/raw", vcs::raw, "The same as one patch").answers(Answer::Text(vcs::PATCH)),
        post(
            "/vcs/apply",
            vcs::apply,
            "Applies a patch to the files of the newest session; one that does not fit changes nothing",
        )
        .takes("{patch}")
        .gives("{applied:boolean}"),
    ]
}

fn terminals() -> Vec<Operation> {
    vec![
        get("/pty", pty::list, "Lists the terminals of the directory").gives("Terminal[]"),
        post("/pty", pty::create, "Starts a program at a new terminal of the newest session")
            .takes("{command? args?:string[] cwd? title? env?:string{}}")
            .gives("Terminal"),
        get("/pty/shells", pty::shells, "The shells that every sandbox has")
            .gives("{path name acceptable:boolean}[]"),
        get("/pty/{id}", pty::get, "Gives a terminal").gives("Terminal"),
        put("/pty/{id}", pty::update, "Names a terminal, or changes its size")
            .takes("{title? size?:{rows:integer cols:integer}}")
            .gives("Terminal"),
        delete("/pty/{id}", pty::delete, "Ends a terminal with its program").gives("boolean"),
        post("/pty/{id}/connect-token", pty::connect_token, "A ticket for one connection of a page")
            .gives("{ticket expires_in:integer}"),
        get("/pty/{id}/connect", pty::connect, "Connects to a terminal")
            .query("{cursor?:integer ticket?}")
            .answers(Answer::Socket),
    ]
}

fn clients() -> Vec<Operation> {
    let tells = |operation: Operation| operation.gives("boolean");
    vec![
        tells(post(
            "/tui/append-prompt",
            tui::append_prompt,
            "Types a text at the directory's terminal clients",
        ))
        .takes("{text}"),
        tells(post("/tui/submit-prompt", tui::submit_prompt, "Sends what is typed at them")),
        tells(post("/tui/clear-prompt", tui::clear_prompt, "Clears what is typed at them")),
        tells(post(
            "/tui/execute-command",
            tui::execute_command,
            "Has them do something, such as `session.new`",
        ))
        .takes("{command}"),
        tells(post("/tui/show-toast", tui::show_toast, "Shows a message at them for some milliseconds"))
            .takes("{title? message variant:'info'|'success'|'warning'|'error' duration?:integer}"),
        tells(post("/tui/select-session", tui::select_session, "Shows a session at them"))
            .takes("{sessionID}"),
        tells(post("/tui/publish", tui::publish, "Tells them one of the events that the others tell"))
            .takes("{type properties:any{}}"),
        tells(post("/tui/open-help", tui::open_help, "Shows the help at them")),
        tells(post("/tui/open-sessions", tui::open_sessions, "Shows the list of sessions at them")),
        tells(post("/tui/open-themes", tui::open_themes, "Shows the list of themes at them")),
        tells(post("/tui/open-models", tui::open_models, "Shows the list of models at them")),
        get("/tui/control/next", tui::control::next, "Waits for the next of these orders")
            .gives("{path body:any}"),
        tells(post(
            "/tui/control/response",
            tui::control::response,
            "What was done with it; nobody reads that",
        ))
        .takes("any"),
    ]
}
