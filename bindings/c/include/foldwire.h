/* Foldwire: collectives of arrays whose values travel compressed, within a bound that you set.
 *
 * Made by cbindgen of bindings/c/src/ffi/; do not change it here. README.md beside it begins at the
 * beginning; the rules that hold for all functions are these.
 *
 * Loss only by consent. A NULL plan is exact. A plan with a bound keeps it, or refuses the call.
 *
 * Results. Every function but two returns an fwResult: FW_SUCCESS is 0. No call hangs, whatever
 * becomes of other ranks: it ends within the time limits of fwConfig. After FW_INVALID_ARGUMENT,
 * FW_INVALID_HANDLE, FW_INVALID_USAGE, FW_IN_USE, FW_UNSUPPORTED and FW_NO_ROOM no values were sent
 * and the communicator is as it was; other failures of a call on it end it for all its ranks
 * (fwCommShrink).
 *
 * Calls. All ranks of a communicator make the same collectives in the same order, with the same
 * counts, types, operations, roots and plans. A call with a NULL request returns when it is over.
 * Else it returns at once, and fwTest, fwWait or fwWaitAll end it; a call under way moves while its
 * rank is in such a function, or waits in another call. A call that refuses its arguments makes no
 * request.
 *
 * Memory. Arrays are as long as is said at each function, in values of data_type, and aligned for
 * it; one of no values may be NULL. They are there until the call is over: until then nobody writes
 * what is sent, and nobody uses what is received. Arrays overlap only where a function says so.
 * In a group that holds for arrays and requests until its end; counts, plans and configurations are
 * copied.
 *
 * Threads. A communicator, those that are split from it, and their requests take one call at a
 * time, from any thread (as MPI_THREAD_SERIALIZED). Who comes while another thread is in there gets
 * FW_IN_USE. Different ranks are independent of each other. At any time any thread may call
 * fwCommAbort, fwCommGetAsyncError, fwCommCount and fwCommUserRank.
 *
 * Processes. A child of fork has none of its parent's communicators and requests: all functions
 * give FW_INVALID_HANDLE there, and end nothing of the parent's. It may make its own.
 *
 * Handles are numbers, not addresses: one that was freed, or is none, gives FW_INVALID_HANDLE.
 */


#ifndef FOLDWIRE_H
#define FOLDWIRE_H

#include <stddef.h>
#include <stdint.h>

// Bytes of an fwUniqueId.
#define FW_UNIQUE_ID_BYTES 128

// The color of a rank that is to be in no communicator of an fwCommSplit.
#define FW_SPLIT_NOCOLOR -1

// Version of the library that this header is of; fwGetVersion has that of the library in use.
#define FW_VERSION_MAJOR 0

// See FW_VERSION_MAJOR.
#define FW_VERSION_MINOR 1

// See FW_VERSION_MAJOR.
#define FW_VERSION_PATCH 0

// Room for the name of a codec or a schedule, its end included.
#define FW_NAME_BYTES 32

// What is behind an fwComm_t.
typedef struct fwComm fwComm;

// What is behind an fwRequest_t.
typedef struct fwRequest fwRequest;

// What became of a call: FW_SUCCESS, or why not. fwGetLastError says it in words.
typedef int32_t fwResult;

// A rank of a communicator. Not an address: it may be passed to any function after it was
// destroyed, which then returns FW_INVALID_HANDLE.
typedef struct fwComm *fwComm_t;

// Whether messages carry checksums.
typedef int32_t fwChecksum;

// Settings of a communicator, and of those that are split from it. Begin with FW_CONFIG_INIT; 0 is
// each member's default. All ranks give the same; calls between ranks that differ in lanes fail
// with FW_MISMATCH.
typedef struct fwConfig {
  // sizeof(fwConfig)
  size_t size;
  // How many calls may be under way at once, up to 256; 0: 8. With 256 no message has a request.
  uint32_t calls;
  // The most messages of a call that a rank has under way side by side, up to 8; 0: 4. Calls on
  // short arrays have fewer, and those of automatic plans as many as are soonest.
  uint32_t lanes;
  // Seconds without any progress after which a call fails; 0: 300.
  double timeout;
  // Seconds that a call may take; 0: as long as it moves.
  double deadline;
  // Bytes per second of a rank's link, each way, if the network does not know it; 0: it does.
  double link_rate;
  // FW_CHECKSUM_…
  fwChecksum checksum;
  // 0
  uint32_t reserved;
} fwConfig;

// What ranks that belong together have in common. One rank's process makes it, the program carries
// its bytes to the others, and each gives it to fwCommInitRank.
typedef struct fwUniqueId {
  // Of no meaning to the caller.
  uint8_t internal[FW_UNIQUE_ID_BYTES];
} fwUniqueId;

// What a finished call did.
typedef struct fwReport {
  // sizeof(fwReport)
  size_t size;
  // From start to finish.
  double seconds;
  // The absolute bound on each operand; 0: exact.
  double bound;
  // The most that a value of the result can be off, rounding of its type aside; 0: exact,
  // negative: not known.
  double worst_case;
  // Bytes of the values that this rank sent, uncompressed.
  uint64_t raw_bytes;
  // Bytes of the messages that this rank sent.
  uint64_t wire_bytes;
  // Messages sent.
  uint64_t n_messages;
  // Name of the codec.
  char codec[FW_NAME_BYTES];
  // Name of the schedule; empty of messages between two ranks.
  char schedule[FW_NAME_BYTES];
} fwReport;

// How the values of different ranks are combined.
typedef int32_t fwRedOp;

// Combines count values of input, at least one, with as many of inout, into inout. context is what
// fwRedOpCreate was given.
typedef void (*fwReduceFunction)(const void *input, void *inout, size_t count, void *context);

// The type of an array's values.
typedef int32_t fwDataType;

// Whether a plan may lose anything, and who chooses.
typedef int32_t fwMode;

// The kind of a bound.
typedef int32_t fwBoundKind;

// What a bound bounds.
typedef int32_t fwScope;

// How a call is carried out. Begin with FW_PLAN_INIT, which is exact, or with fwPlanParse; 0 is
// each member's default. All ranks of a call give the same. NULL in place of a plan is exact.
typedef struct fwPlan {
  // sizeof(fwPlan)
  size_t size;
  // FW_EXACT, FW_LOSSLESS, FW_COMPRESS or FW_AUTO
  fwMode mode;
  // FW_NO_BOUND, FW_ABSOLUTE, FW_RELATIVE or FW_PSNR
  fwBoundKind bound_kind;
  // The bound, if there is one: finite and above 0.
  double bound;
  // FW_EACH_OPERAND or FW_RESULT
  fwScope scope;
  // The codec's own number, as the rate of zfp-rate; 0: its default.
  uint32_t setting;
  // Name of the codec, with FW_LOSSLESS or FW_COMPRESS; empty: the mode's own.
  char codec[FW_NAME_BYTES];
  // Name of the schedule; empty: the one that suits the call.
  char schedule[FW_NAME_BYTES];
  // The array's last three dimensions, slowest first, for codecs that look along them; the first
  // ones of fewer are 1. All 0: not known.
  size_t shape[3];
  // Arrays of fewer bytes in all travel as they are.
  size_t exact_below;
  // Not 0: own values are rounded without bias, by random numbers from the seed.
  uint64_t is_unbiased;
  // See is_unbiased.
  uint64_t seed;
} fwPlan;

// A call under way. Not an address, as an fwComm_t.
typedef struct fwRequest *fwRequest_t;

// All is well.
#define FW_SUCCESS 0

// A null pointer, a misaligned or overlapping buffer, an unknown code, a length that overflows, a
// bound or root that cannot be. No values were sent; correct the call and repeat it.
#define FW_INVALID_ARGUMENT 1

// A communicator or request that does not exist, or no longer, or not in this process.
#define FW_INVALID_HANDLE 2

// A call that may not be made here and now, as too many calls at once. Nothing was sent.
#define FW_INVALID_USAGE 3

// Another thread is inside a call on this communicator, or on one that it was split from or into.
#define FW_IN_USE 4

// There is no such thing, as an average of integers.
#define FW_UNSUPPORTED 5

// Frames, channels or room in a buffer do not suffice.
#define FW_NO_ROOM 6

// Ranks disagree on what they call.
#define FW_MISMATCH 7

// Nothing moved for longer than the time limit, or the deadline passed.
#define FW_TIMEOUT 8

// A rank is gone.
#define FW_PEER_LOST 9

// Another rank gave the call up, or fwCommAbort of another thread did.
#define FW_ABORTED 10

// An earlier call failed; shrink the communicator, or make a new one.
#define FW_POISONED 11

// The survivors went on without this rank.
#define FW_EXCLUDED 12

// Bytes that are damaged, or were never made by this library.
#define FW_DAMAGED 13

// The network failed.
#define FW_TRANSPORT_ERROR 14

// A defect of Foldwire. Please report it.
#define FW_INTERNAL_ERROR 15

// float
#define FW_FLOAT32 1

// double
#define FW_FLOAT64 2

// IEEE 754 binary16
#define FW_FLOAT16 3

// bfloat16
#define FW_BFLOAT16 4

// int8_t
#define FW_INT8 5

// uint8_t
#define FW_UINT8 6

// int16_t
#define FW_INT16 7

// uint16_t
#define FW_UINT16 8

// int32_t
#define FW_INT32 9

// uint32_t
#define FW_UINT32 10

// int64_t
#define FW_INT64 11

// uint64_t
#define FW_UINT64 12

// Sum; of integers modulo 2^bits.
#define FW_SUM 1

// Sum divided by the number of ranks; not of integers.
#define FW_AVG 2

// The smallest value; NaN if any is NaN.
#define FW_MIN 3

// The largest value; NaN if any is NaN.
#define FW_MAX 4

// Product; of integers modulo 2^bits.
#define FW_PROD 5

// Values travel as they are.
#define FW_EXACT 0

// Values travel compressed, and every bit arrives.
#define FW_LOSSLESS 1

// Values travel compressed within the bound.
#define FW_COMPRESS 2

// Exactly or within the bound, whatever is sooner; chosen for each call.
#define FW_AUTO 3

// No bound.
#define FW_NO_BOUND 0

// In the unit of the data.
#define FW_ABSOLUTE 1

// A fraction of the range of all ranks' values.
#define FW_RELATIVE 2

// A peak signal-to-noise ratio, in dB.
#define FW_PSNR 3

// Each rank's values: a sum of n ranks may be off by n times the bound, an average by the bound.
#define FW_EACH_OPERAND 0

// The result.
#define FW_RESULT 1

// If the network can damage them.
#define FW_CHECKSUM_AS_NEEDED 0

// Always.
#define FW_CHECKSUM_ALWAYS 1

// Never.
#define FW_CHECKSUM_NEVER 2

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of this library, as 10000 · major + 100 · minor + patch.
fwResult fwGetVersion(int32_t *version);

// What a result means. The text is there for ever.
const char *fwGetErrorString(fwResult result);

// What this thread's last failure was, in numbers and with what to change; empty if none. The text
// is there until the thread's next failure.
const char *fwGetLastError(void);

// Makes all ranks of a group of threads: comms has room for n_ranks handles, of rank 0, 1, … Each
// is for one thread, or one thread plays several by groups. config may be NULL.
fwResult fwCommInitAll(fwComm_t *comms, int32_t n_ranks, const struct fwConfig *config);

// Makes what ranks need to find each other. One process calls it, that of rank 0, and the program
// carries its 128 bytes to the others as it likes: a file, a pipe, MPI. They are a secret: who has
// them can join. It is for one communicator, and holds a socket until rank 0 has come.
//
// The socket is one of this host alone unless the environment names the network to use:
// FOLDWIRE_IFACE, as eth0, or FOLDWIRE_ADDRESS, on all ranks.
fwResult fwGetUniqueId(struct fwUniqueId *id);

// Makes one rank of those that give the same id and n_ranks, and waits for the others, each in a
// thread or process of its own; no longer than config's timeout and deadline, a few seconds aside.
// In a group it is made when the group ends, so that one thread can make several; such a group has
// nothing else. Ranks that are threads of one process pass values in memory, all others by TCP.
// config may be NULL.
//
// FW_MISMATCH: another n_ranks than rank 0's, or other FOLDWIRE_STREAMS or FOLDWIRE_ENCRYPT.
// FW_TIMEOUT: not all came. FW_PEER_LOST: nobody waits for those of this id, or no longer.
fwResult fwCommInitRank(fwComm_t *comm,
                        int32_t n_ranks,
                        struct fwUniqueId id,
                        int32_t rank,
                        const struct fwConfig *config);

// Makes the communicator of all processes that were started with this one, and waits for them as
// fwCommInitRank does. Who they are and where rank 0 is the environment says: of foldwire launch,
// of MPI's launchers, of Slurm, of torchrun, or FOLDWIRE_RANK, FOLDWIRE_SIZE and FOLDWIRE_ROOT. A
// process that was started alone is the only rank. A process makes one at a time. config may be
// NULL.
fwResult fwCommInitEnv(fwComm_t *comm, const struct fwConfig *config);

// The number of ranks.
fwResult fwCommCount(fwComm_t comm, int32_t *count);

// This rank.
fwResult fwCommUserRank(fwComm_t comm, int32_t *rank);

// Fills in what the last call of this communicator that went well did on this rank; a group's
// calls together. Begin with FW_REPORT_INIT.
fwResult fwCommReport(fwComm_t comm, struct fwReport *report);

// Makes a communicator of the ranks that give the same color, 0 or more, in the order of their
// keys, and of their old ranks where those are the same. A rank that gives FW_SPLIT_NOCOLOR gets
// NULL. All ranks call it together. Only config's calls count, which are the same on all ranks of
// a color; NULL: as many as before.
//
// A communicator and all that are split from it have room for 256 calls at once. Each takes as
// many as its configuration says, and one more for its messages: so there may be 28 of 8 calls.
// fwCommDestroy gives a communicator's room back, so there is no end to splits. FW_NO_ROOM: too
// little is left. FW_MISMATCH: ranks of a color differ in calls. After these two errors comm is as
// it was.
fwResult fwCommSplit(fwComm_t comm,
                     int32_t color,
                     int32_t key,
                     fwComm_t *new_comm,
                     const struct fwConfig *config);

// Makes a communicator of the ranks that call this, after a failure or without one; who does not
// answer for patience seconds is left out. comm is destroyed, whatever comes of it, and its
// requests end with FW_POISONED.
fwResult fwCommShrink(fwComm_t comm, double patience, fwComm_t *new_comm);

// Destroys this rank's communicator; others notice when they need it. FW_IN_USE if one of its
// requests was not waited for, or another thread is inside: wait for them, or abort it. What was
// split from it lives on. With the last of them ends the connection to other processes, once what
// was sent has arrived, or after the timeout, or a minute.
fwResult fwCommDestroy(fwComm_t comm);

// Destroys a communicator at once, from any thread, also while another one is inside a call: that
// ends with FW_ABORTED, within a tenth of a second, or as soon as it has computed what it is at.
// So do its requests. Its other ranks hear of it: this call or their next one fails with
// FW_ABORTED. Communicators that were split from it, or that it was split from, go on. Abort waits
// for nothing, so messages that ranks have not taken yet may be lost.
fwResult fwCommAbort(fwComm_t comm);

// Says what has become of a communicator, from any thread, also while another one is inside a
// call: async_error becomes FW_SUCCESS while calls can be made on it, else why not, as
// FW_PEER_LOST, FW_TIMEOUT or FW_ABORTED. It says what calls have found, and advances those under
// way unless another thread is inside; no thread of this library's looks on its own. The result of
// this function is that of the question: FW_INVALID_HANDLE after fwCommAbort.
fwResult fwCommGetAsyncError(fwComm_t comm, fwResult *async_error);

// Makes an operation of a function, for calls of any type whose values it knows how to combine.
// The result must be the same bits in whichever order two values come, and up to rounding in
// whichever order more do; all ranks of a call give operations that do the same.
//
// Calls with it are exact: a plan has no bound. The function is called for each value, or several,
// by any thread that is in a function of this library or computes for it, also by several at once.
// It returns, and calls no function of this library for the communicator that it computes for,
// which gets FW_IN_USE. Function and context are there until the last call with it is over.
fwResult fwRedOpCreate(fwRedOp *op, fwReduceFunction function, void *context);

// Frees an operation that fwRedOpCreate has made. Calls with it that were made before go on.
fwResult fwRedOpDestroy(fwRedOp op);

// recv, of count values, becomes the reduction of all ranks' send, the same bits on every rank. In
// place if send == recv.
fwResult fwAllReduce(const void *send,
                     void *recv,
                     size_t count,
                     fwDataType data_type,
                     fwRedOp op,
                     const struct fwPlan *plan,
                     fwComm_t comm,
                     fwRequest_t *request);

// recv, of count values, becomes the root's send, the same bits on every rank, the root's
// included. send is looked at on the root only. In place if send == recv.
fwResult fwBroadcast(const void *send,
                     void *recv,
                     size_t count,
                     fwDataType data_type,
                     int32_t root,
                     const struct fwPlan *plan,
                     fwComm_t comm,
                     fwRequest_t *request);

// The root's recv, of count values, becomes the reduction of all ranks' send; recv is not touched
// elsewhere and may be NULL. In place if send == recv.
fwResult fwReduce(const void *send,
                  void *recv,
                  size_t count,
                  fwDataType data_type,
                  fwRedOp op,
                  int32_t root,
                  const struct fwPlan *plan,
                  fwComm_t comm,
                  fwRequest_t *request);

// recv, of count values, becomes this rank's share of the reduction of all ranks' send, of count
// values for each rank. In place if recv is that share of send, which is written then; what else
// is in send is unchanged, or rounded if the plan rounds without bias.
fwResult fwReduceScatter(const void *send,
                         void *recv,
                         size_t count,
                         fwDataType data_type,
                         fwRedOp op,
                         const struct fwPlan *plan,
                         fwComm_t comm,
                         fwRequest_t *request);

// As fwReduceScatter, where the share of rank r has counts[r] values. All ranks give the same
// counts, one for each rank.
fwResult fwReduceScatterV(const void *send,
                          void *recv,
                          const size_t *counts,
                          fwDataType data_type,
                          fwRedOp op,
                          const struct fwPlan *plan,
                          fwComm_t comm,
                          fwRequest_t *request);

// recv, of count values for each rank, becomes all ranks' send of count values, in their order,
// the same bits on every rank. In place if send is this rank's share of recv.
fwResult fwAllGather(const void *send,
                     void *recv,
                     size_t count,
                     fwDataType data_type,
                     const struct fwPlan *plan,
                     fwComm_t comm,
                     fwRequest_t *request);

// As fwAllGather, where the share of rank r has counts[r] values. All ranks give the same counts,
// one for each rank.
fwResult fwAllGatherV(const void *send,
                      void *recv,
                      const size_t *counts,
                      fwDataType data_type,
                      const struct fwPlan *plan,
                      fwComm_t comm,
                      fwRequest_t *request);

// The root's recv, of count values for each rank, becomes all ranks' send of count values, in
// their order; recv is not touched elsewhere and may be NULL. On the root send may be its share of
// recv.
fwResult fwGather(const void *send,
                  void *recv,
                  size_t count,
                  fwDataType data_type,
                  int32_t root,
                  const struct fwPlan *plan,
                  fwComm_t comm,
                  fwRequest_t *request);

// As fwGather, where the share of rank r has counts[r] values. All ranks give the same counts, one
// for each rank.
fwResult fwGatherV(const void *send,
                   void *recv,
                   const size_t *counts,
                   fwDataType data_type,
                   int32_t root,
                   const struct fwPlan *plan,
                   fwComm_t comm,
                   fwRequest_t *request);

// recv, of count values, becomes this rank's share of the root's send, of count values for each
// rank; send is not looked at elsewhere and may be NULL. On the root recv may be its share of
// send.
fwResult fwScatter(const void *send,
                   void *recv,
                   size_t count,
                   fwDataType data_type,
                   int32_t root,
                   const struct fwPlan *plan,
                   fwComm_t comm,
                   fwRequest_t *request);

// As fwScatter, where the share of rank r has counts[r] values. All ranks give the same counts,
// one for each rank.
fwResult fwScatterV(const void *send,
                    void *recv,
                    const size_t *counts,
                    fwDataType data_type,
                    int32_t root,
                    const struct fwPlan *plan,
                    fwComm_t comm,
                    fwRequest_t *request);

// Sends count values to each rank, those for rank r at send + r * count, and receives as many from
// each, in the order of ranks. In place if send == recv.
fwResult fwAllToAll(const void *send,
                    void *recv,
                    size_t count,
                    fwDataType data_type,
                    const struct fwPlan *plan,
                    fwComm_t comm,
                    fwRequest_t *request);

// Sends send_counts[r] values to rank r, and receives recv_counts[r] values from it; they lie one
// after the other by rank. What one rank sends to another must be as many as that expects.
fwResult fwAllToAllV(const void *send,
                     const size_t *send_counts,
                     void *recv,
                     const size_t *recv_counts,
                     fwDataType data_type,
                     const struct fwPlan *plan,
                     fwComm_t comm,
                     fwRequest_t *request);

// recv, of count values, becomes the reduction of this rank's send and those of all ranks before
// it. In place if send == recv.
fwResult fwScan(const void *send,
                void *recv,
                size_t count,
                fwDataType data_type,
                fwRedOp op,
                const struct fwPlan *plan,
                fwComm_t comm,
                fwRequest_t *request);

// recv, of count values, becomes the reduction of the send of all ranks before this one. On rank 0
// recv is not touched and may be NULL. In place if send == recv.
fwResult fwExclusiveScan(const void *send,
                         void *recv,
                         size_t count,
                         fwDataType data_type,
                         fwRedOp op,
                         const struct fwPlan *plan,
                         fwComm_t comm,
                         fwRequest_t *request);

// Is over when all ranks have called it.
fwResult fwBarrier(fwComm_t comm, fwRequest_t *request);

// Sends count values to a rank, which receives as many with the same tag. It is over when send may
// be used again, whether the values have arrived or not. Messages match as in MPI: from one rank
// to another, of those with the same tag, the first that was sent comes to the first fwRecv, with
// requests or without. Ranks may make messages of other tags and ranks, and collectives, in any
// order. At most 1024 that are sent have requests at once, and as many that are received. A
// message for which no fwRecv has come is held in its receiver's memory, up to 1024 of each rank.
//
// FW_MISMATCH: of a receive also if it waits beyond its time limit, and a message with a tag came
// that no receive was for.
fwResult fwSend(const void *send,
                size_t count,
                fwDataType data_type,
                int32_t peer,
                uint32_t tag,
                const struct fwPlan *plan,
                fwComm_t comm,
                fwRequest_t *request);

// Receives count values from a rank. What they may have lost is the sender's plan.
fwResult fwRecv(void *recv,
                size_t count,
                fwDataType data_type,
                int32_t peer,
                uint32_t tag,
                fwComm_t comm,
                fwRequest_t *request);

// Sends to one rank and receives from another side by side. The arrays must not overlap. For more
// of both at once: fwSend and fwRecv in a group.
fwResult fwSendRecv(const void *send,
                    size_t send_count,
                    int32_t destination,
                    void *recv,
                    size_t recv_count,
                    int32_t source,
                    fwDataType data_type,
                    uint32_t tag,
                    const struct fwPlan *plan,
                    fwComm_t comm);

// Advances the calls of a request's communicator. done becomes 1 if the request's call is over,
// whose result is returned then, and request NULL; else 0. A NULL request is over.
fwResult fwTest(fwRequest_t *request, int32_t *done);

// Waits until a request's call is over, returns its result, and makes the request NULL. Waiting
// for a NULL request is nothing.
fwResult fwWait(fwRequest_t *request);

// Waits until the calls of all n requests are over, also if they are of several ranks that this
// thread plays, and makes them NULL. Returns the first result that is not FW_SUCCESS.
fwResult fwWaitAll(size_t n, fwRequest_t *requests);

// Begins a group: this thread's calls until fwGroupEnd only take note of their arguments, and
// return at once. Groups may be within groups. Not in a group, and refused alone: fwCommInitEnv,
// splitting, shrinking, destroying and aborting communicators, and waiting for a request of the
// group's.
fwResult fwGroupStart(void);

// Ends a group. The end of the outermost one makes the calls, of one communicator or of several
// that this thread plays, and waits for those without a request; returns the first failure.
//
// A group is made whole or not at all. A collective, message or fwCommInitRank that is refused
// between fwGroupStart and fwGroupEnd, or here, refuses the group: this function says why, and
// nothing of the group was sent. Correct the call, and repeat the whole group. Arrays of a group
// do not overlap where one of them is written.
//
// All-reduces of a communicator that differ in nothing but arrays and bounds, and have no
// requests, are made as one call, in which short arrays share messages: all ranks make the same
// group. fwSend and fwRecv go on side by side; a group that has one has nothing else, for one
// communicator, and those without requests have one type and one plan. A group of more calls than
// fwConfig.calls waits for the first ones.
fwResult fwGroupEnd(void);

// Reads a plan from text, words with commas between them: exact, lossless, compress or auto; a
// bound, abs:0.1, rel:1e-4 or psnr:60; codec:NAME or codec:NAME:SETTING, schedule:NAME,
// scope:result, below:BYTES, shape:110x64x128, unbiased:SEED. "rel:1e-4" alone is compress. Needs
// no FW_PLAN_INIT before.
fwResult fwPlanParse(const char *text, struct fwPlan *plan);

// The most bytes that fwCompress may need for count floats.
fwResult fwCompressMaxSize(size_t count, fwDataType data_type, size_t *max_bytes);

// Compresses count floats within the plan's bound, or with every bit if it has none, into up to
// capacity bytes at compressed, which say all about themselves. n_bytes becomes how many they are;
// with FW_NO_ROOM, how many are needed. A relative bound refers to the range of these values.
fwResult fwCompress(const void *values,
                    size_t count,
                    fwDataType data_type,
                    const struct fwPlan *plan,
                    void *compressed,
                    size_t capacity,
                    size_t *n_bytes);

// What compressed bytes say of themselves: the type, how many values, and the bound that they are
// within, 0 if every bit is kept. Each place may be NULL.
fwResult fwCompressedInfo(const void *compressed,
                          size_t n_bytes,
                          fwDataType *data_type,
                          uint64_t *count,
                          double *bound);

// Decompresses what fwCompress made of values of this type into up to capacity values. count
// becomes how many they are. Bytes that are damaged, or not by fwCompress, give FW_DAMAGED.
fwResult fwDecompress(const void *compressed,
                      size_t n_bytes,
                      fwDataType data_type,
                      void *values,
                      size_t capacity,
                      size_t *count);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FOLDWIRE_H */

/* Begin with these: `fwPlan plan = FW_PLAN_INIT;`. All other members are 0, the default. */
#define FW_CONFIG_INIT { sizeof(fwConfig), 0, 0, 0, 0, 0, FW_CHECKSUM_AS_NEEDED, 0 }
#define FW_PLAN_INIT                                                                               \
    { sizeof(fwPlan), FW_EXACT, FW_NO_BOUND, 0, FW_EACH_OPERAND, 0, {0}, {0}, {0, 0, 0}, 0, 0, 0 }
#define FW_REPORT_INIT { sizeof(fwReport), 0, 0, 0, 0, 0, 0, {0}, {0} }
