//! Mistakes with runs of parts and with holdings.

use super::*;

#[test]
fn misused_runs_are_found() {
    let scatter = call(Collective::Scatter, 4, 0).with_runs(2);
    // Rank 0 sends parts 2 and 3 to rank 2, which sends part 3 on.
    let (rank, from) = (Rank(2), Rank(0));
    assert_eq!(
        fault_after(&Binomial, scatter, |programs| programs[0][0].n_parts = 3),
        Fault::LongRun { rank: from, step: 0, n_parts: 3, max: 2 }
    );
    assert_eq!(
        fault_after(&Binomial, scatter, |programs| programs[2][0].n_parts = 1),
        Fault::WrongRun { rank, step: 0, from, expected: 1, arrived: 2 }
    );
    assert_eq!(
        fault_after(&Binomial, scatter, |programs| programs[2].swap(1, 2)),
        Fault::OtherPartHeld { rank, step: 1, part: Part(2), held: Part(2) }
    );
    let gather = call(Collective::Gather, 8, 7).with_runs(4);
    // Rank 3 takes its own part, appends the parts of ranks 4, 5 and 6, and sends all of them.
    let (rank, held) = (Rank(3), Part(3));
    assert_eq!(
        fault_after(&Binomial, gather, |programs| programs[3].swap(1, 2)),
        Fault::OtherPartHeld { rank, step: 1, part: Part(5), held }
    );
    assert_eq!(
        fault_after(&Binomial, gather, |programs| {
            let last = programs[3].last_mut().expect("no program is empty");
            (last.part, last.n_parts) = (Part(5), 2);
            let received = &mut programs[7][3];
            (received.part, received.n_parts) = (Part(5), 2);
        }),
        Fault::HoldingLeft { rank, part: held }
    );
}

#[test]
fn the_wrong_end_of_a_holding_is_found() {
    // Rank 0 sends the last parts of its holding, rank 3 the first.
    let scatter = call(Collective::ReduceScatter, 4, 0).with_runs(2);
    for (rank, part, held) in [(Rank(0), Part(1), Part(0)), (Rank(3), Part(2), Part(2))] {
        let fault = fault_after(&RecursiveHalving, scatter, |programs| {
            let step = &mut programs[rank.index()][2];
            step.front = !step.front;
        });
        assert_eq!(fault, Fault::OtherPartHeld { rank, step: 2, part, held });
    }
    let fault = fault_after(&RecursiveHalving, scatter, |programs| programs[3][1].front = true);
    assert_eq!(fault, Fault::Malformed { rank: Rank(3), step: 1 });

    let gather = call(Collective::AllGather, 8, 0).with_runs(4);
    let (rank, part, held) = (Rank(1), Part(0), Part(1));
    assert_eq!(
        fault_after(&RecursiveHalving, gather, |programs| programs[1][2].front = false),
        Fault::OtherPartHeld { rank, step: 2, part, held }
    );
}

#[test]
fn misused_rows_are_found() {
    // Rank 0 sends the second part of each row of its holding, and receives as many.
    let all_to_all = call(Collective::AllToAll, 8, 0);
    let change = |step: usize, change: fn(&mut SourceRows)| {
        move |programs: &mut [Vec<Step>]| {
            let rows = programs[0][step].rows.as_mut().expect("the step has rows");
            change(rows);
        }
    };
    let (rank, from) = (Rank(0), Rank(6));
    let [sends, receives, sends_last] = [4, 5, 6];
    assert_eq!(
        program(&Bruck, all_to_all, rank).to_string().lines().nth(sends),
        Some("4: send part 2 and 3 more in rows of 2 to 2")
    );
    let fault = |step, with| fault_after(&Bruck, all_to_all, change(step, with));
    for damage in [
        (|rows| rows.len = 0) as fn(&mut SourceRows),
        |rows| rows.back = 8,
        |rows| rows.ring = 0,
        |rows| rows.ring = 3,
        |rows| rows.held = rows.len,
    ] {
        assert_eq!(fault(sends, damage), Fault::Malformed { rank, step: sends });
    }
    let (part, held) = (Part(2), Part(1));
    let other = Fault::OtherPartHeld { rank, step: sends, part, held };
    assert_eq!(fault(sends, |rows| rows.held = 0), other);
    assert_eq!(fault(sends, |rows| rows.held = 8), other);
    assert_eq!(fault(sends, |rows| rows.back = 2), other);
    assert_eq!(fault(sends, |rows| rows.ring = 1), other);
    let Fault::WrongPart { rank: Rank(0), step, from: whom, .. } =
        fault(receives, |rows| rows.back = 2)
    else {
        panic!("another part is expected")
    };
    assert_eq!((step, whom), (receives, from));
    // The received parts go to the end of the holding, so a later step does not find them in its
    // rows.
    let (part, held) = (Part(1), Part(1));
    assert_eq!(
        fault(receives, |rows| rows.held = 0),
        Fault::OtherPartHeld { rank, step: sends_last, part, held }
    );
    // Only an all-to-all has a matrix of parts.
    let rows = SourceRows { len: 1, back: 1, ring: 4, held: 0 };
    assert_eq!(
        fault_after(&Ring, call(Collective::AllGather, 4, 0), |programs| {
            programs[0][0].rows = Some(rows);
        }),
        Fault::Malformed { rank, step: 0 }
    );
}

#[test]
fn parts_of_other_numbers_of_contributions_are_found() {
    // In the first round of the correct schedule, each of 6 ranks sends three parts and adds three.
    // Here it sends and adds only two.
    let scatter = call(Collective::ReduceScatter, 6, 0).with_runs(3);
    let first_round = |programs: &mut [Vec<Step>]| {
        for (r, program) in programs.iter_mut().enumerate() {
            let part = |behind| Part::new((r + behind) % 6);
            let peer = Rank::new((r + 3) % 6);
            program[0] = Step::own(part(4)).run(2).to(peer);
            program[1] = Step::receive(part(1), peer).run(2).reduce_local().keep();
        }
    };
    let of_one_rank_first = fault_after(&Circulant, scatter, |programs| {
        first_round(programs);
        for (r, program) in programs.iter_mut().enumerate() {
            let own = Step::own(Part::new(r));
            program.insert(1, own.keep());
            program[3] = own.run(3).to(Rank::new((r + 1) % 6));
        }
    });
    let Fault::Uneven { rank, step: 3, part } = of_one_rank_first else {
        panic!("{of_one_rank_first}")
    };
    assert_eq!(part.0, rank.0);
    let of_one_rank_last = fault_after(&Circulant, scatter, |programs| {
        first_round(programs);
        for (r, program) in programs.iter_mut().enumerate() {
            program.insert(2, Step::own(Part::new((r + 3) % 6)).keep());
        }
    });
    let Fault::Uneven { rank, step: 2, part } = of_one_rank_last else {
        panic!("{of_one_rank_last}")
    };
    assert_eq!(part.0, (rank.0 + 3) % 6);
}
