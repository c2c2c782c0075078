//! Tests that the checker finds every kind of mistake and names it. [`Step`] defines the words: own
//! operand, local part, holding, run.

mod runs;

use super::*;

/// A schedule as a table of steps, which tests damage.
struct Table {
    n_parts: usize,
    min_run: usize,
    programs: Vec<Vec<Step>>,
}

impl Table {
    fn of(schedule: &dyn Schedule, call: ProgramSpec) -> Self {
        let ranks = (0..call.size).map(Rank::new);
        let program = |rank| {
            (0..schedule.n_steps(call, rank)).map(|i| schedule.step(call, rank, i)).collect()
        };
        let (n_parts, min_run) = (schedule.n_parts(call), schedule.min_run(call));
        Self { n_parts, min_run, programs: ranks.map(program).collect() }
    }

    /// Applies `damage` to one step at a time, and calls `judge` for each program that it changed.
    fn each_damaged(
        &mut self,
        damage: impl Fn(&mut Vec<Step>, usize),
        judge: impl Fn(&Self, usize, usize),
    ) {
        for rank in 0..self.programs.len() {
            let intact = self.programs[rank].clone();
            for index in 0..intact.len() {
                damage(&mut self.programs[rank], index);
                if self.programs[rank] != intact {
                    judge(self, rank, index);
                    self.programs[rank].clone_from(&intact);
                }
            }
        }
    }
}

impl Schedule for Table {
    fn name(&self) -> &'static str {
        "table"
    }
    fn supports(&self, _: Collective) -> bool {
        true
    }
    fn n_parts(&self, _: ProgramSpec) -> usize {
        self.n_parts
    }
    fn min_run(&self, _: ProgramSpec) -> usize {
        self.min_run
    }
    fn n_steps(&self, _: ProgramSpec, rank: Rank) -> usize {
        self.programs[rank.index()].len()
    }
    fn n_encodings(&self, _: ProgramSpec) -> u64 {
        0
    }

    fn step(&self, _: ProgramSpec, rank: Rank, index: usize) -> Step {
        self.programs[rank.index()][index]
    }
}

/// Fault that the checker finds in `schedule` after `damage` to its programs.
fn fault_after(
    schedule: &dyn Schedule,
    call: ProgramSpec,
    damage: impl FnOnce(&mut [Vec<Step>]),
) -> Fault {
    let mut table = Table::of(schedule, call);
    check(&table, call).expect("the schedule is right before the damage");
    damage(&mut table.programs);
    check(&table, call).expect_err("the damage is found")
}

#[test]
fn an_all_to_all_that_overwrites_parts_before_it_sends_them_is_found() {
    let all_to_all = call(Collective::AllToAll, 3, 0);
    let fault = fault_after(&Linear, all_to_all, |programs| {
        // Each rank receives from the rank before it, and only then sends to it. With one buffer
        // for input and output, the received part overwrites the part to send.
        programs.iter_mut().for_each(|program| program.swap(1, 3));
    });
    let (rank, part) = (Rank(1), all_to_all.part_between(Rank(1), Rank(0)));
    assert_eq!(fault, Fault::NoLocal { rank, step: 3, part });
}

#[test]
fn every_step_is_needed() {
    for &schedule in ALL {
        for call in calls(schedule, 1..=9) {
            Table::of(schedule, call).each_damaged(
                |program, index| {
                    program.remove(index);
                },
                |table, rank, index| {
                    // A step that takes a local part into the holding is not always needed: a later
                    // step may use the local part directly.
                    let only_takes = (schedule.min_run(call) > 1 || call.encodes_first)
                        && schedule.step(call, Rank::new(rank), index).takes();
                    let is_found = only_takes || check(table, call).is_err();
                    assert!(is_found, "{call:?} without step {index} of {rank}");
                },
            );
        }
    }
}

#[test]
fn no_step_may_run_twice() {
    for &schedule in ALL {
        for call in calls(schedule, 1..=9) {
            Table::of(schedule, call).each_damaged(
                |program, index| program.insert(index, program[index]),
                |table, rank, index| {
                    assert!(
                        check(table, call).is_err(),
                        "{call:?} with step {index} of {rank} twice"
                    );
                },
            );
        }
    }
}

#[test]
fn every_part_is_the_right_one() {
    for &schedule in ALL {
        for call in calls(schedule, 2..=9).into_iter().filter(|&call| schedule.n_parts(call) > 1) {
            Table::of(schedule, call).each_damaged(
                |program, index| {
                    let part = &mut program[index].part;
                    *part = Part::new((part.index() + 1) % schedule.n_parts(call));
                },
                |table, rank, index| {
                    assert!(
                        check(table, call).is_err(),
                        "{call:?}, other part in {index} of {rank}"
                    );
                },
            );
        }
    }
}

#[test]
fn every_run_is_as_long_as_it_must_be() {
    for shorter in [false, true] {
        for call in calls(&Binomial, 2..=9).into_iter().filter(|call| call.max_run > 1) {
            Table::of(&Binomial, call).each_damaged(
                |program, index| {
                    let n_parts = &mut program[index].n_parts;
                    *n_parts = if shorter { *n_parts - 1 } else { *n_parts + 1 };
                },
                |table, rank, index| {
                    let found = check(table, call);
                    assert!(found.is_err(), "{call:?}, other run in {index} of {rank}");
                },
            );
        }
    }
}

#[test]
fn every_peer_is_the_right_one() {
    let other = |rank: Rank, size| Rank::new((rank.index() + 1) % size);
    for &schedule in ALL {
        for call in calls(schedule, 3..=9) {
            Table::of(schedule, call).each_damaged(
                |program, index| {
                    let step = &mut program[index];
                    step.from = step.from.map(|from| other(from, call.size));
                    step.to = step.to.map(|to| other(to, call.size));
                },
                |table, rank, index| {
                    assert!(
                        check(table, call).is_err(),
                        "{call:?}, other peer in {index} of {rank}"
                    );
                },
            );
        }
    }
}

#[test]
fn only_values_that_are_needed_again_are_kept() {
    for &schedule in ALL {
        for call in calls(schedule, 2..=9) {
            Table::of(schedule, call).each_damaged(
                |program, index| {
                    let step = &mut program[index];
                    // In a step that receives nothing, `keep` only says that the local part may be
                    // used again.
                    if step.keep || step.from.is_some() {
                        step.keep = !step.keep;
                    }
                },
                |table, rank, index| {
                    assert!(
                        check(table, call).is_err(),
                        "{call:?}, other keep in {index} of {rank}"
                    );
                },
            );
        }
    }
}

#[test]
fn calls_that_make_no_sense_are_refused() {
    let size = 4;
    assert_eq!(
        check(&Ring, call(Collective::AllReduce, 0, 0)),
        Err(Fault::BadCall { root: Rank(0), size: 0 })
    );
    assert_eq!(
        check(&Binomial, call(Collective::Broadcast, size, 4)),
        Err(Fault::BadCall { root: Rank(4), size })
    );
    assert_eq!(
        check(&Ring, call(Collective::Broadcast, size, 0)),
        Err(Fault::Unsupported { collective: Collective::Broadcast })
    );
    let whole = Table { n_parts: 1, min_run: 1, programs: vec![vec![]; size] };
    assert_eq!(
        check(&whole, call(Collective::AllGather, size, 0)),
        Err(Fault::PartCount { n_parts: 1, size })
    );
}

#[test]
fn ill_formed_steps_are_found() {
    let ring = call(Collective::AllReduce, 4, 0);
    let (rank, step) = (Rank(2), 3);
    assert_eq!(
        fault_after(&Ring, ring, |programs| programs[2][2].to = None),
        Fault::Malformed { rank, step: 2 }
    );
    assert_eq!(
        fault_after(&Ring, ring, |programs| programs[2][0].own = false),
        Fault::Malformed { rank, step: 0 }
    );
    assert_eq!(
        fault_after(&Ring, ring, |programs| programs[2][3].to = Some(rank)),
        Fault::BadPeer { rank, step, peer: rank }
    );
    assert_eq!(
        fault_after(&Ring, ring, |programs| programs[2][3].from = Some(Rank(4))),
        Fault::BadPeer { rank, step, peer: Rank(4) }
    );
    assert_eq!(
        fault_after(&Ring, ring, |programs| programs[2][3].part = Part(4)),
        Fault::BadPart { rank, step, part: Part(4), n_parts: 4 }
    );
}

#[test]
fn swapped_parts_are_found() {
    let fault = fault_after(&Binomial, call(Collective::Scatter, 4, 0), |programs| {
        programs[0].swap(0, 1);
    });
    let (expected, arrived) = (Part(3), Part(2));
    assert_eq!(
        fault,
        Fault::WrongPart { rank: Rank(2), step: 0, from: Rank(0), expected, arrived }
    );
}

#[test]
fn a_missing_send_is_found() {
    let fault = fault_after(&Binomial, call(Collective::Scatter, 4, 0), |programs| {
        programs[0].remove(2);
    });
    assert_eq!(fault, Fault::NeverSent { rank: Rank(1), step: 0, from: Rank(0) });
}

#[test]
fn a_missing_receive_is_found() {
    let all_gather = call(Collective::AllGather, 3, 0);
    let fault = fault_after(&Ring, all_gather, |programs| {
        programs[1].pop();
    });
    assert_eq!(fault, Fault::Undelivered { from: Rank(0), to: Rank(1), part: Part(2) });

    // A rank that receives nothing gets two frames, and the link has space for only one.
    let fault = fault_after(&Binomial, call(Collective::Scatter, 4, 0), |programs| {
        programs[2].clear();
    });
    assert_eq!(fault, Fault::NeverReceived { rank: Rank(0), step: 1, to: Rank(2) });
}

#[test]
fn a_ring_that_receives_before_it_sends_is_found() {
    let fault = fault_after(&Ring, call(Collective::AllReduce, 4, 0), |programs| {
        programs.iter_mut().for_each(|program| program.swap(0, 1));
    });
    assert_eq!(fault, Fault::Deadlock { rank: Rank(0), step: 0, peer: Rank(3), n_stuck: 4 });
}

#[test]
fn a_deadlock_that_longer_links_would_hide_is_found() {
    let all_reduce = call(Collective::AllReduce, 2, 0);
    let program = |peer: Rank| {
        let send = |p| Step::own(Part(p)).to(peer).keep();
        let reduce = |p| Step::receive(Part(p), peer).reduce().store();
        vec![send(0), reduce(0), send(1), reduce(1)]
    };
    let exchange =
        Table { n_parts: 2, min_run: 1, programs: vec![program(Rank(1)), program(Rank(0))] };
    let fault = fault_after(&exchange, all_reduce, |programs| {
        programs.iter_mut().for_each(|program| program.swap(1, 2));
    });
    assert_eq!(fault, Fault::Deadlock { rank: Rank(0), step: 1, peer: Rank(1), n_stuck: 2 });
}

#[test]
fn misused_holdings_are_found() {
    let rank = Rank(0);
    let fault = fault_after(&Ring, call(Collective::AllGather, 3, 0), |programs| {
        programs[0][1].keep = true;
    });
    assert_eq!(fault, Fault::HoldingLeft { rank, part: Part(2) });
    let fault = fault_after(&Ring, call(Collective::AllGather, 3, 0), |programs| {
        programs[0][1].keep = true;
        programs[0][2].own = true;
    });
    let (part, held) = (Part(1), Part(2));
    assert_eq!(fault, Fault::OtherPartHeld { rank, step: 2, part, held });

    let reduce = call(Collective::Reduce, 4, 0);
    let part = Part(0);
    assert_eq!(
        fault_after(&Binomial, reduce, |programs| {
            let last = &mut programs[0][1];
            (last.own, last.keep, last.store) = (false, true, false);
        }),
        Fault::HoldingLost { rank, step: 1, part }
    );
    assert_eq!(
        fault_after(&Binomial, reduce, |programs| {
            let last = &mut programs[0][1];
            (last.keep, last.store) = (true, false);
        }),
        Fault::HoldingLeft { rank, part }
    );
}

#[test]
fn a_local_part_that_the_rank_never_had_is_found() {
    let fault = fault_after(&Ring, call(Collective::AllGather, 3, 0), |programs| {
        programs[0][0].part = Part(1);
    });
    assert_eq!(fault, Fault::NoLocal { rank: Rank(0), step: 0, part: Part(1) });
}

#[test]
fn a_local_part_that_was_not_kept_is_found() {
    let fault = fault_after(&Binomial, call(Collective::Broadcast, 4, 0), |programs| {
        programs[0][0].keep = false;
    });
    assert_eq!(fault, Fault::NoLocal { rank: Rank(0), step: 1, part: Part(0) });
}

#[test]
fn a_local_part_that_was_overwritten_is_found() {
    let all_reduce = call(Collective::AllReduce, 3, 0);
    let fault = fault_after(&RecursiveDoubling, all_reduce, |programs| {
        // Rank 0 is a guest: it sends its operand to its host, and later receives the result. The
        // result overwrites its local part.
        programs[0][0].keep = true;
        programs[0].push(Step::own(Part(0)).to(Rank(1)));
    });
    assert_eq!(fault, Fault::NoLocal { rank: Rank(0), step: 2, part: Part(0) });
}

#[test]
fn a_scan_that_stores_operands_of_the_wrong_ranks_is_found() {
    let (inclusive, exclusive) =
        (call(Collective::Scan, 4, 0), call(Collective::ExclusiveScan, 4, 0));
    let (rank, step, part) = (Rank(2), 0, Part(0));
    let wrong = |contributor| Fault::WrongContributors { rank, step, part, contributor };
    let stores_the_sum = |programs: &mut [Vec<Step>]| programs[2][0].before = false;
    assert_eq!(fault_after(&Chain, exclusive, stores_the_sum), wrong(Rank(2)));
    let stores_the_received_value = |programs: &mut [Vec<Step>]| programs[2][0].before = true;
    assert_eq!(fault_after(&Chain, inclusive, stores_the_received_value), wrong(Rank(2)));
    // A step marked `before` stores the received value, sends the sum, and keeps nothing.
    for damage in [
        (|step| step.own = false) as fn(&mut Step),
        |step| step.to = None,
        |step| step.store = false,
        |step| step.keep = true,
    ] {
        let fault = fault_after(&Chain, exclusive, |programs| damage(&mut programs[2][0]));
        assert_eq!(fault, Fault::Malformed { rank, step });
    }
}

#[test]
fn a_double_count_is_found() {
    let fault = fault_after(&RecursiveDoubling, call(Collective::AllReduce, 4, 0), |programs| {
        for program in programs {
            // Repeat the exchange with the first partner instead of the second.
            program[2] = program[0];
            program[3] = program[1];
        }
    });
    assert!(
        matches!(fault, Fault::DoubleCount { step: 3, contributor: Rank(0 | 2), .. }),
        "{fault}"
    );
}

#[test]
fn an_incomplete_reduction_is_found() {
    let fault = fault_after(&RecursiveDoubling, call(Collective::AllReduce, 4, 0), |programs| {
        for program in programs {
            program.drain(2..4);
        }
    });
    assert!(
        matches!(fault, Fault::WrongContributors { step: 2, contributor: Rank(0 | 2), .. }),
        "{fault}"
    );
}

#[test]
fn wrong_outputs_are_found() {
    let fault = fault_after(&Ring, call(Collective::ReduceScatter, 3, 0), |programs| {
        programs[0][1].store = true;
    });
    assert_eq!(fault, Fault::NotOutput { rank: Rank(0), step: 1, part: Part(1) });

    let fault = fault_after(&Binomial, call(Collective::Broadcast, 4, 0), |programs| {
        let store_forward = Step::receive(Part(0), Rank(0)).store().to(Rank(3));
        programs[2] = vec![store_forward.keep(), Step::own(Part(0)).store()];
    });
    assert_eq!(fault, Fault::StoredTwice { rank: Rank(2), step: 1, part: Part(0) });

    let fault = fault_after(&Ring, call(Collective::AllGather, 3, 0), |programs| {
        programs[0][1].store = false;
    });
    assert_eq!(fault, Fault::NeverStored { rank: Rank(0), part: Part(2) });
}

#[test]
fn a_rank_that_stores_other_bits_than_its_peers_is_found() {
    for (schedule, call, rank) in [
        (&Binomial as &dyn Schedule, call(Collective::Broadcast, 4, 1), 1),
        (&RecursiveDoubling, call(Collective::AllReduce, 3, 0), 1),
        (&RecursiveDoubling, call(Collective::AllReduce, 3, 0), 2),
    ] {
        let fault = fault_after(schedule, call, |programs| {
            // The rank then stores its exact value, although its peers store a decoded one.
            let end = programs[rank].last_mut().expect("no program is empty");
            assert!(end.as_sent);
            end.as_sent = false;
        });
        assert!(matches!(fault, Fault::DifferentBits { .. }), "{fault}");
    }
}

#[test]
fn an_order_of_reduction_that_depends_on_the_rank_is_found() {
    let program = |r: usize| {
        let others = [1, 2].map(|distance| Rank::new((r + distance) % 3));
        let send = |to| Step::own(Part(0)).to(to).keep();
        let reduce = |from| Step::receive(Part(0), from).reduce().keep();
        let end = Step::own(Part(0)).store();
        vec![send(others[0]), send(others[1]), reduce(others[0]), reduce(others[1]), end]
    };
    let everyone_adds_up =
        Table { n_parts: 1, min_run: 1, programs: (0..3).map(program).collect() };
    let fault = check(&everyone_adds_up, call(Collective::AllReduce, 3, 0)).unwrap_err();
    assert!(matches!(fault, Fault::DifferentBits { .. }), "{fault}");
}

#[test]
fn programs_and_faults_read_well() {
    let all_reduce = call(Collective::AllReduce, 3, 0);
    assert_eq!(
        program(&RecursiveDoubling, all_reduce, Rank(1)).to_string(),
        "0: reduce part 0 from 0\n\
         1: send part 0 to 2, keep\n\
         2: reduce part 0 from 2\n\
         3: send part 0 to 0, keep\n\
         4: finish-as-sent part 0\n"
    );
    let gather = call(Collective::Gather, 4, 1).with_runs(4);
    assert_eq!(
        program(&Binomial, gather, Rank(3)).to_string(),
        "0: take part 3\n\
         1: hold part 0 from 0\n\
         2: send part 3 and 1 more to 1\n"
    );
    assert_eq!(
        Fault::NeverSent { rank: Rank(1), step: 3, from: Rank(0) }.to_string(),
        "rank 1, step 3: waits for a frame from 0, whose program has ended"
    );
}
