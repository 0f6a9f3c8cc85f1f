# Where the configuration of a repository is.
configuration_places=(opencode.json opencode.jsonc .opencode .flotilla/config.yaml .devcontainer.json .devcontainer/devcontainer.json
  .github/workflows/copilot-setup-steps.yml)
