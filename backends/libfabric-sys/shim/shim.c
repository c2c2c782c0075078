/* Functions of shim.h. Each shim_x calls libfabric's x, except shim_set_progress. */

#include "shim.h"

int shim_fi_close(struct fid *fid)
{
    return fi_close(fid);
}

struct fi_info *shim_fi_allocinfo(void)
{
    return fi_allocinfo();
}

void shim_set_progress(struct fi_domain_attr *attr, enum fi_progress progress)
{
    attr->control_progress = progress;
    attr->data_progress = progress;
}

int shim_fi_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
                   void *context)
{
    return fi_domain(fabric, info, domain, context);
}

int shim_fi_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
                     void *context)
{
    return fi_endpoint(domain, info, ep, context);
}

int shim_fi_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq,
                    void *context)
{
    return fi_cq_open(domain, attr, cq, context);
}

int shim_fi_av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av,
                    void *context)
{
    return fi_av_open(domain, attr, av, context);
}

int shim_fi_av_insert(struct fid_av *av, void *addr, size_t count, fi_addr_t *fi_addr,
                      uint64_t flags, void *context)
{
    return fi_av_insert(av, addr, count, fi_addr, flags, context);
}

int shim_fi_mr_reg(struct fid_domain *domain, const void *buf, size_t len, uint64_t acs,
                   uint64_t offset,
                   uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context)
{
    return fi_mr_reg(domain, buf, len, acs, offset, requested_key, flags, mr, context);
}

int shim_fi_mr_bind(struct fid_mr *mr, struct fid *bfid, uint64_t flags)
{
    return fi_mr_bind(mr, bfid, flags);
}

int shim_fi_mr_enable(struct fid_mr *mr)
{
    return fi_mr_enable(mr);
}

void *shim_fi_mr_desc(struct fid_mr *mr)
{
    return fi_mr_desc(mr);
}

int shim_fi_ep_bind(struct fid_ep *ep, struct fid *bfid, uint64_t flags)
{
    return fi_ep_bind(ep, bfid, flags);
}

int shim_fi_enable(struct fid_ep *ep)
{
    return fi_enable(ep);
}

int shim_fi_getname(fid_t fid, void *addr, size_t *addrlen)
{
    return fi_getname(fid, addr, addrlen);
}

ssize_t shim_fi_cancel(fid_t fid, void *context)
{
    return fi_cancel(fid, context);
}

ssize_t shim_fi_tsend(struct fid_ep *ep, const void *buf, size_t len, void *desc,
                      fi_addr_t dest_addr, uint64_t tag, void *context)
{
    return fi_tsend(ep, buf, len, desc, dest_addr, tag, context);
}

ssize_t shim_fi_trecv(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src_addr,
                      uint64_t tag, uint64_t ignore, void *context)
{
    return fi_trecv(ep, buf, len, desc, src_addr, tag, ignore, context);
}

ssize_t shim_fi_cq_read(struct fid_cq *cq, void *buf, size_t count)
{
    return fi_cq_read(cq, buf, count);
}

ssize_t shim_fi_cq_readerr(struct fid_cq *cq, struct fi_cq_err_entry *buf, uint64_t flags)
{
    return fi_cq_readerr(cq, buf, flags);
}
