//! The commands of the documentation install what the chart renders.

use std::{fs, path::PathBuf, process::Command};

use super::tools::{Tools, root, scratch_folder, text_of};

/// A digest in the place of `sha256:...`.
const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn guide() -> String {
    fs::read_to_string(root().join("docs/operations.md")).unwrap()
}

/// A file in a folder of this name with the values that the guide proposes as `broker.yaml`.
fn values_of_the_guide(folder: &str) -> PathBuf {
    let guide = guide();
    let (_, after) = guide.split_once("```yaml\n").unwrap();
    let file = scratch_folder(folder).join("broker.yaml");
    fs::write(&file, after.split_once("```").unwrap().0).unwrap();
    file
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn each_variant_of_the_values_of_the_guide_is_accepted() {
    let tools = Tools::find();
    let guide = guide();
    let (_, table) = guide.split_once("| if | then |\n|---|---|\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let variants: Vec<_> = rows
        .filter_map(|row| row.split('`').nth(1).filter(|values| values.contains(": {")))
        .collect();
    assert!(variants.len() > 5, "{variants:?}");
    let values = values_of_the_guide("guide-variants");
    let variant_file = values.with_file_name("variant.yaml");
    for variant in variants {
        fs::write(&variant_file, variant).unwrap();
        let files = [
            "helm/mcp-broker/values-ha.yaml",
            values.to_str().unwrap(),
            variant_file.to_str().unwrap(),
        ];
        tools.render(&files.map(|file| ["--values", file]).concat());
    }
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn each_installation_of_the_documentation_is_accepted() {
    let tools = Tools::find();
    let helm = tools.python_program("helm").get_program().to_owned();
    for page in ["docs/operations.md", "helm/mcp-broker/README.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let text = text.replace("\\\n", " ").replace("sha256:...", DIGEST);
        let text = text.replace(
            " broker.yaml\n",
            &format!(" {}\n", values_of_the_guide("guide-installation").display()),
        );
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
