//! The commands of the documentation install what the chart renders.

use std::{fs, process::Command};

use super::tools::{Tools, root, text_of};

/// A digest in the place of `sha256:...`.
const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn each_installation_of_the_documentation_is_accepted() {
    let Some(tools) = Tools::find() else { return };
    let helm = tools.python_program("helm").get_program().to_owned();
    for page in ["docs/operations.md", "helm/mcp-broker/README.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let text = text.replace("\\\n", " ").replace("sha256:...", DIGEST);
        let installations = text
            .lines()
            .filter(|line| line.starts_with("helm install ") && !line.contains("oci://"));
        let mut rendered = 0;
        for installation in installations {
            let script = format!("helm() {{ shift; \"$HELM\" template \"$@\"; }}; {installation}");
            let output = Command::new("sh")
                .args(["-euc", &script])
                .env("HELM", &helm)
                .env("KUBECONFIG", "/dev/null")
                .current_dir(root())
                .output()
                .unwrap();
            let said = text_of(&output);
            assert!(output.status.success(), "{page}: {installation}\n{said}");
            assert!(said.contains("containerPort: 8000"), "{page}: {installation}\n{said}");
            rendered += 1;
        }
        assert!(rendered >= 2, "{page} has commands");
    }
}
