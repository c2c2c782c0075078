/* Input of bindgen: libfabric's headers, replacements for their static inline functions, which have
 * no symbol, and constants. Each constant has the type of the field that it is for, because some
 * are macros in one release and enumerators in another. In Rust, shim_x is called x. */

#ifndef FOLDWIRE_LIBFABRIC_SHIM_H
#define FOLDWIRE_LIBFABRIC_SHIM_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define CONSTANT(type, name) static const type shim_##name = name

/* Capabilities, operations, flags of fi_getinfo */
CONSTANT(uint64_t, FI_TAGGED);
CONSTANT(uint64_t, FI_SEND);
CONSTANT(uint64_t, FI_RECV);
CONSTANT(uint64_t, FI_TRANSMIT);
CONSTANT(uint64_t, FI_SOURCE);
CONSTANT(uint64_t, FI_PROV_ATTR_ONLY);

/* Modes that a provider may require */
CONSTANT(uint64_t, FI_CONTEXT);
CONSTANT(uint64_t, FI_CONTEXT2);
CONSTANT(int, FI_MR_LOCAL);
CONSTANT(int, FI_MR_VIRT_ADDR);
CONSTANT(int, FI_MR_ALLOCATED);
CONSTANT(int, FI_MR_PROV_KEY);
CONSTANT(int, FI_MR_ENDPOINT);

/* Attributes */
CONSTANT(uint64_t, FI_ORDER_SAS);
CONSTANT(uint32_t, FI_SOCKADDR_IN);
CONSTANT(uint32_t, FI_SOCKADDR_IN6);

/* Errors */
CONSTANT(int, FI_EAGAIN);
CONSTANT(int, FI_EAVAIL);
CONSTANT(int, FI_ECANCELED);
CONSTANT(int, FI_ECONNABORTED);
CONSTANT(int, FI_ECONNREFUSED);
CONSTANT(int, FI_ECONNRESET);
CONSTANT(int, FI_EHOSTDOWN);
CONSTANT(int, FI_EHOSTUNREACH);
CONSTANT(int, FI_EINVAL);
CONSTANT(int, FI_EIO);
CONSTANT(int, FI_ENETDOWN);
CONSTANT(int, FI_ENETUNREACH);
CONSTANT(int, FI_ENODATA);
CONSTANT(int, FI_ENOENT);
CONSTANT(int, FI_ENOMEM);
CONSTANT(int, FI_ENOTCONN);
CONSTANT(int, FI_EREMOTEIO);
CONSTANT(int, FI_ESHUTDOWN);
CONSTANT(int, FI_ETIMEDOUT);
CONSTANT(int, FI_ETRUNC);

/* Any object */
int shim_fi_close(struct fid *fid);

/* Provider descriptions */
struct fi_info *shim_fi_allocinfo(void);
/* Sets both progress fields, which are in an anonymous union since 2.0 */
void shim_set_progress(struct fi_domain_attr *attr, enum fi_progress progress);

/* Domain, and the objects opened in it */
int shim_fi_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
                   void *context);
int shim_fi_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
                     void *context);
int shim_fi_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq,
                    void *context);
int shim_fi_av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av,
                    void *context);
int shim_fi_av_insert(struct fid_av *av, void *addr, size_t count, fi_addr_t *fi_addr,
                      uint64_t flags, void *context);

/* Memory */
int shim_fi_mr_reg(struct fid_domain *domain, const void *buf, size_t len, uint64_t acs,
                   uint64_t offset,
                   uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context);
int shim_fi_mr_bind(struct fid_mr *mr, struct fid *bfid, uint64_t flags);
int shim_fi_mr_enable(struct fid_mr *mr);
void *shim_fi_mr_desc(struct fid_mr *mr);

/* Endpoint */
int shim_fi_ep_bind(struct fid_ep *ep, struct fid *bfid, uint64_t flags);
int shim_fi_enable(struct fid_ep *ep);
int shim_fi_getname(fid_t fid, void *addr, size_t *addrlen);
ssize_t shim_fi_cancel(fid_t fid, void *context);

/* Messages */
ssize_t shim_fi_tsend(struct fid_ep *ep, const void *buf, size_t len, void *desc,
                      fi_addr_t dest_addr, uint64_t tag, void *context);
ssize_t shim_fi_trecv(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src_addr,
                      uint64_t tag, uint64_t ignore, void *context);

/* Completions */
ssize_t shim_fi_cq_read(struct fid_cq *cq, void *buf, size_t count);
ssize_t shim_fi_cq_readerr(struct fid_cq *cq, struct fi_cq_err_entry *buf, uint64_t flags);

#endif
