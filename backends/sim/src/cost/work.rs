//! What a step computes: the engine's `Doing`, with costs in place of frames.
//!
//! Core's `engine/doing.rs` says what each action does with what its lane holds, by three
//! properties of the pipeline and codec: whether frames that pass are encoded anew (*recodes*),
//! whether partial sums stay frames (*keeps frames*), and whether own values are encoded before
//! they are combined (*encodes own*). This is the same table in primitives:
//!
//! | what happens | keeps frames, own floats (raw, fused) | keeps frames, encodes own (homomorphic) | floats (compress-once, per-hop) |
//! |---|---|---|---|
//! | own values leave | encode | encode | encode |
//! | a frame meets own values | fold | encode, combine | copy own, reduce |
//! | … and the result leaves | fold | encode, combine | refold |
//! | … and is stored | fold-store | encode, combine, decode | (copy own, if not in place), reduce |
//! | … and both | fold-store | encode, combine, decode | refold, decode |
//! | a frame meets a partial sum | combine | combine | reduce |
//! | a partial sum leaves | nothing | nothing | encode; decode, if it is needed again |
//! | a frame passes | nothing (per-hop: recode) | nothing | nothing (per-hop: recode) |
//! | a frame is stored | decode | decode | decode |
//! | own values stand for what others decode | encode, decode (raw: copy) | encode, decode | encode, decode |
//! | what leaves is needed again | copy of the frame | copy of the frame | decode (reductions), nothing (others) |
//!
//! *Operands* are the ranks whose values are in a frame; they decide its size on the wire. Dividing
//! by the number of ranks in an average is not counted: it happens within a decode.

use foldwire::Plan;
use foldwire::codec::CodecId;
use foldwire::op::OpCode;
use foldwire::schedule::{Action, Collective, Step};

/// What codec, pipeline and call say of every step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    exact: bool,
    recodes: bool,
    keeps_frames: bool,
    encodes_own: bool,
    reduces: bool,
    in_place: bool,
}

impl Rules {
    /// The rules of a call of `collective` by `op` and `plan`; `in_place` if it has one buffer for
    /// input and result.
    #[must_use]
    pub fn new(collective: Collective, op: OpCode, plan: &Plan, in_place: bool) -> Self {
        let (pipeline, codec): (_, CodecId) = (plan.pipeline, plan.codec);
        Self {
            exact: codec.is_exact(),
            recodes: pipeline.recodes(codec, op),
            keeps_frames: pipeline.keeps_frames(codec, op),
            encodes_own: pipeline.encodes_own(codec, op),
            reduces: collective.reduces(),
            in_place,
        }
    }

    /// Whether the call combines values.
    pub(super) const fn reduces(self) -> bool {
        self.reduces
    }
}

/// What a lane keeps of the current part between steps, and of how many operands it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holding {
    /// Nothing; the rank's own values stand for themselves.
    #[default]
    Nothing,
    /// A frame.
    Encoded(u32),
    /// Floats.
    Floats(u32),
}

/// Primitives of a step, each a number of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of Speeds")]
pub struct Work {
    pub encode: u8,
    pub decode: u8,
    pub fold: u8,
    pub fold_store: u8,
    pub combine: u8,
    pub reduce: u8,
    pub refold: u8,
    pub recode: u8,
    /// Of values.
    pub copy: u8,
    /// Of a frame; of how many operands is in what leaves.
    pub copy_frame: u8,
}

/// One step as it is added up.
struct Doing<'h> {
    rules: Rules,
    holding: &'h mut Holding,
    /// Operands of the frame that came in.
    incoming: u32,
    work: Work,
}

/// What `step` computes, given what its lane holds and of how many operands the incoming frame is
/// (anything if the step receives none); and of how many the frame is that leaves (0 if none does).
/// `holding` becomes what the lane holds after it.
#[must_use]
pub fn act(rules: Rules, step: &Step, holding: &mut Holding, incoming: u32) -> (Work, u32) {
    let mut doing = Doing { rules, holding, incoming, work: Work::default() };
    let outgoing = doing.act(step);
    (doing.work, outgoing)
}

impl Doing<'_> {
    fn act(&mut self, step: &Step) -> u32 {
        match step.action {
            Action::Send => return self.send(step.keep),
            Action::SendStore => {
                self.work.encode += 1;
                if self.rules.exact {
                    self.copy_own();
                } else {
                    self.work.decode += 1;
                }
                return 1;
            }
            Action::Hold => {
                *self.holding = if self.rules.recodes {
                    self.work.decode += 1;
                    Holding::Floats(self.incoming)
                } else {
                    Holding::Encoded(self.incoming)
                };
            }
            Action::Finish => self.finish(),
            Action::FinishAsSent => self.finish_as_sent(),
            Action::Store => self.work.decode += 1,
            Action::Forward => return self.pass_on(),
            Action::StoreForward => {
                self.work.decode += 1;
                return self.pass_on();
            }
            Action::Reduce => self.reduce(),
            Action::ReduceSend => return self.reduce_send(),
            Action::ReduceStore => self.reduce_store(),
            Action::ReduceStoreSend => {
                if self.folds() {
                    self.work.fold_store += 1;
                    return self.incoming + 1;
                }
                self.work.decode += 1;
                return self.reduce_send();
            }
            other => unreachable!("the model does not know {other:?}"),
        }
        0
    }

    fn copy_own(&mut self) {
        self.work.copy += u8::from(!self.rules.in_place);
    }

    fn send(&mut self, keep: bool) -> u32 {
        let Rules { exact, recodes, keeps_frames, encodes_own, reduces, .. } = self.rules;
        match std::mem::take(self.holding) {
            Holding::Nothing => {
                self.work.encode += 1;
                if keep && !exact {
                    if reduces && !keeps_frames {
                        self.work.decode += 1;
                        *self.holding = Holding::Floats(1);
                    } else if encodes_own && reduces || !reduces && !recodes {
                        self.work.copy_frame += 1;
                        *self.holding = Holding::Encoded(1);
                    }
                }
                1
            }
            Holding::Encoded(operands) => {
                if keep {
                    self.work.copy_frame += 1;
                    *self.holding = Holding::Encoded(operands);
                }
                operands
            }
            Holding::Floats(operands) => {
                self.work.encode += 1;
                if keep {
                    self.work.decode += u8::from(reduces);
                    *self.holding = Holding::Floats(operands);
                }
                operands
            }
        }
    }

    fn finish(&mut self) {
        match std::mem::take(self.holding) {
            Holding::Nothing => self.copy_own(),
            Holding::Encoded(_) => self.work.decode += 1,
            Holding::Floats(_) => self.work.copy += 1,
        }
    }

    fn finish_as_sent(&mut self) {
        if self.rules.exact {
            return self.finish();
        }
        let held = std::mem::take(self.holding);
        self.work.encode += u8::from(!matches!(held, Holding::Encoded(_)));
        self.work.decode += 1;
    }

    fn pass_on(&mut self) -> u32 {
        self.work.recode += u8::from(self.rules.recodes);
        self.incoming
    }

    /// Whether the step takes own values, as they are, into an incoming frame.
    fn folds(&self) -> bool {
        matches!(self.holding, Holding::Nothing)
            && self.rules.keeps_frames
            && !self.rules.encodes_own
    }

    fn reduce(&mut self) {
        let incoming = self.incoming;
        *self.holding = match std::mem::take(self.holding) {
            Holding::Nothing if self.rules.encodes_own => {
                self.work.encode += 1;
                self.work.combine += 1;
                Holding::Encoded(incoming + 1)
            }
            Holding::Nothing if self.rules.keeps_frames => {
                self.work.fold += 1;
                Holding::Encoded(incoming + 1)
            }
            Holding::Nothing => {
                self.work.copy += 1;
                self.work.reduce += 1;
                Holding::Floats(incoming + 1)
            }
            Holding::Encoded(held) => {
                self.work.combine += 1;
                Holding::Encoded(incoming + held)
            }
            Holding::Floats(held) => {
                self.work.reduce += 1;
                Holding::Floats(incoming + held)
            }
        };
    }

    fn reduce_send(&mut self) -> u32 {
        if matches!(self.holding, Holding::Nothing) && !self.rules.keeps_frames {
            self.work.refold += 1;
            return self.incoming + 1;
        }
        self.reduce();
        self.send(false)
    }

    fn reduce_store(&mut self) {
        if self.folds() {
            self.work.fold_store += 1;
        } else if matches!(self.holding, Holding::Nothing) && !self.rules.keeps_frames {
            self.copy_own();
            self.work.reduce += 1;
        } else {
            self.reduce();
            self.finish();
        }
    }
}
