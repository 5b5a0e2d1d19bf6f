//! What the program prints about itself, and of arguments that are wrong.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

use clap::{CommandFactory as _, Parser as _};
use kube::core::Status;

use crate::{Cli, requests, told};

#[test]
fn help() {
    // Values of the environment are of the machine.
    let mut command = Cli::command().mut_args(|arg| arg.hide_env_values(true));
    command = command.mut_subcommands(|command| {
        let hide = |command: clap::Command| command.mut_args(|arg| arg.hide_env_values(true));
        hide(command).mut_subcommands(hide)
    });
    command.build();
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!("help", command.render_long_help());
        for subcommand in command.get_subcommands_mut().filter(|command| command.get_name() != "help") {
            let name = format!("help_{}", subcommand.get_name());
            insta::assert_snapshot!(name.as_str(), subcommand.render_long_help());
            for nested in subcommand.get_subcommands_mut().filter(|command| command.get_name() != "help") {
                insta::assert_snapshot!(format!("{name}_{}", nested.get_name()), nested.render_long_help());
            }
        }
    });
}

#[test]
fn wrong_arguments() {
    let wrong = [
        "controller --exempt-namespaces=*-system",
        "controller --platform-accounts=cdi-sa",
        "controller --platform-accounts=kubevirt:kubevirt-controller",
        "operator --gating=both",
        "webhook --tls-cert-file=tls.crt",
    ];
    let said = wrong.map(|arguments| {
        let line = ["sluice"].into_iter().chain(arguments.split(' '));
        let error = Cli::try_parse_from(line).unwrap_err().to_string();
        format!("{}\n", error.split("\n\nUsage").next().unwrap())
    });
    insta::assert_snapshot!(said.concat(), @r#"
    error: invalid value '*-system' for '--exempt-namespaces <NAMES>': "*-system" is neither the name of a namespace nor the beginning of one with * at its end: lower case letters, digits and - are allowed, up to 63

    For more information, try '--help'.

    error: invalid value 'cdi-sa' for '--platform-accounts <NAMESPACE:NAME>': "cdi-sa" is not a ServiceAccount: write namespace:name, like cdi:cdi-sa

    For more information, try '--help'.

    error: invalid value 'kubevirt:kubevirt-controller' for '--platform-accounts <NAMESPACE:NAME>': "kubevirt:kubevirt-controller" creates the launchers of VMs, which are never exempt: leave it out

    For more information, try '--help'.

    error: invalid value 'both' for '--gating <WHO>'
      [possible values: policy, webhook]

    For more information, try '--help'.

    error: the following required arguments were not provided:
      --tls-key-file <FILE>
    "#);
}

#[test]
fn an_error_is_told_once_and_of_an_answer_the_words_alone() {
    let forbidden = || kube::Error::Api(Status::failure("no: not you", "Forbidden").with_code(403).boxed());
    let request = requests::failed("patch", "namespace a".to_owned(), "namespaces".to_owned())(forbidden());
    let words = "could not patch namespace a: no: not you: grant this account the verb patch on namespaces, or run it as \
        an administrator of the cluster";
    assert_eq!(told(&request.into()), words);
    let wrapped = anyhow::Error::from(forbidden()).context("could not look");
    assert_eq!(told(&wrapped), "could not look: no: not you");
    assert_eq!(told(&anyhow::anyhow!("a\u{1b}[2J").context("b")), "b: a\u{fffd}[2J");
}
