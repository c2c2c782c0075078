//! `cluster status`: nodes, rates, counters, processes.

use super::counters::{Counters, shaped_rate};
use super::ip::require;
use super::nodes::{Cluster, address, processes};
use super::shape::{Rate, ends};

pub(super) fn run(cluster: &Cluster) -> anyhow::Result<()> {
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
    let mut counters = Vec::new();
    println!(
        "{:>4}  {:<16}  {:<11}  {:>9}  {:>9}  processes",
        "node", "namespace", "address", "out", "in"
    );
    for &index in &found.nodes {
        let namespace = cluster.node(index);
        let [out, into] = ends(cluster, index).map(|end| shaped_rate(&end).map(text));
        let processes: Vec<_> = processes(&namespace)?
            .into_iter()
            .map(|p| format!("{} ({})", p.command, p.pid))
            .collect();
        let row = format!(
            "{index:>4}  {namespace:<16}  {:<11}  {:>9}  {:>9}  {}",
            address(index),
            out?,
            into?,
            processes.join(", ")
        );
        println!("{}", row.trim_end());
        counters.push(Counters::read(cluster, index)?);
    }
    print!("\n{}", Counters::table(&counters));
    Ok(())
}

fn text(rate: Option<u64>) -> String {
    rate.map_or(Rate::Unlimited, Rate::Limited).to_string()
}
