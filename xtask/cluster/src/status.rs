//! `cluster status`: nodes, rates, counters, processes.

use super::counters::{Counters, shaped_rate};
use super::ip::require;
use super::nodes::{ClusterName, address, processes};
use super::shape::{Rate, ends};
use std::io::{self, Write};

pub(super) fn run(cluster: &ClusterName) -> anyhow::Result<()> {
    require()?;
    let found = cluster.find()?;
    found.refuse_foreign()?;
    if found.is_empty() {
        println!("there is no cluster `{cluster}`");
        return Ok(());
    }
    if !found.is_complete {
        println!("cluster `{cluster}` was never finished; `up` makes it anew, `down` removes it");
        return Ok(());
    }
    let mut text = format!(
        "{:>4}  {:<16}  {:<11}  {:>9}  {:>9}  processes\n",
        "node", "namespace", "address", "out", "in"
    );
    let mut counters = Vec::new();
    for &index in &found.nodes {
        let namespace = cluster.node(index);
        let [out, into] = ends(cluster, index).map(|end| shaped_rate(&end).map(rate));
        let processes: Vec<_> = processes(&namespace)?
            .into_iter()
            .map(|process| format!("{} ({})", process.command, process.pid))
            .collect();
        let row = format!(
            "{index:>4}  {namespace:<16}  {:<11}  {:>9}  {:>9}  {}",
            address(index),
            out?,
            into?,
            processes.join(", ")
        );
        text += row.trim_end();
        text += "\n";
        counters.push(Counters::read(cluster, index)?);
    }
    text += "\n";
    text += &Counters::table(&counters);
    // Ignore the error: it means that the reader closed the output.
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(())
}

fn rate(bits: Option<u64>) -> String {
    bits.map_or(Rate::Unlimited, Rate::Limited).to_string()
}
